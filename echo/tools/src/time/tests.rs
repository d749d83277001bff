use echo_core::units::Window;
use serde_json::json;

use super::{TimeArg, TimeRange, WindowArg};
use crate::ToolContext;
use crate::fixture::{at, context, empty};

async fn resolve(context: &ToolContext, range: TimeRange) -> Window {
    range.resolve(context, None).await.unwrap()
}

fn time(text: &str) -> TimeArg {
    text.parse().unwrap()
}

#[test]
fn an_instant_is_parsed_in_every_format() {
    let instant = TimeArg::At(at(90));
    for text in [
        "2026-06-01T00:01:30Z",
        "2026-06-01T02:01:30+02:00",
        "1780272090000",
        " 2026-06-01T00:01:30.000Z ",
    ] {
        assert_eq!(text.parse(), Ok(instant), "{text}");
    }
    let number: TimeArg = serde_json::from_value(json!(1_780_272_090_000_u64)).unwrap();
    assert_eq!(number, instant);
    let midnight = TimeArg::At(at(0));
    assert_eq!("2026-06-01".parse(), Ok(midnight), "a date begins in UTC");
    assert_eq!("now".parse(), Ok(TimeArg::Ago(0)));
    assert_eq!("now-15m".parse(), Ok(TimeArg::Ago(900_000_000_000)));
}

#[test]
fn implausible_instants_and_windows_are_rejected() {
    for text in [
        "",
        "now+5m",
        "now-",
        "nowish",
        "now-0s",
        "15m",
        "0",
        "-5",
        "2262-04-11T00:00:00Z",
        "1780272090",
        "2026-06-31",
        "2019-12-31",
        "2026-06",
        "2026-06-01T00:00:00",
        "99999999999999999999",
    ] {
        assert!(text.parse::<TimeArg>().is_err(), "{text:?} was accepted");
    }
    for text in ["", "everything", "-5m", "m", "5", "5 m", "99999999999d"] {
        assert!(text.parse::<WindowArg>().is_err(), "{text:?} was accepted");
    }
}

#[test]
fn errors_show_how_to_write_the_time() {
    let window = |text: &str| text.parse::<WindowArg>().unwrap_err();
    assert_eq!(window("15"), "\"15\" has no unit; give one, such as 15m");
    assert_eq!(
        window("1w"),
        "\"1w\" is not a duration such as 90s, 15m, 24h or 7d, or all"
    );
    let time = |text: &str| text.parse::<TimeArg>().unwrap_err();
    assert_eq!(
        time("15m"),
        "\"15m\" is a duration; for an instant write now-15m"
    );
    assert_eq!(
        time("1780272090"),
        "1780272090 is in seconds; give Unix milliseconds: 1780272090000"
    );
    assert_eq!(
        time("2026-06-01T08:00:00"),
        "\"2026-06-01T08:00:00\" has no time zone; append Z for UTC"
    );
    assert_eq!(
        time("yesterday"),
        "\"yesterday\" is not a time between 2020 and 2100 such as 2026-11-20T08:00:00Z, 2026-11-20 (UTC) or now-15m, nor \
         Unix milliseconds"
    );
}

#[tokio::test]
async fn the_default_window_is_the_last_hour() {
    let context = context().await;
    let hour = Window::new(at(-3_000), at(600)).unwrap();
    assert_eq!(resolve(&context, TimeRange::default()).await, hour);
    let only_to = TimeRange {
        to: Some(time("now-5m")),
        ..TimeRange::default()
    };
    assert_eq!(
        resolve(&context, only_to).await,
        Window::new(at(-3_300), at(300)).unwrap()
    );
    let only_from = TimeRange {
        from: Some(time("now-5m")),
        ..TimeRange::default()
    };
    assert_eq!(
        resolve(&context, only_from).await,
        Window::new(at(300), at(600)).unwrap()
    );
}

#[tokio::test]
async fn window_all_spans_all_stored_events() {
    let all = TimeRange {
        window: Some(WindowArg::All),
        ..TimeRange::default()
    };
    let window = resolve(&context().await, all).await;
    assert_eq!((window.from(), window.to()), (at(0), at(600).offset(1)));
    let empty = empty();
    assert_eq!(
        resolve(&empty, all).await.to(),
        at(600),
        "the last hour without events"
    );
}
