use super::figure::{Axis, Figure, Legend, SIZE};
use super::{Format, ticks};
use super::{Picture, render};

fn figure(values: &[f64]) -> Figure {
    let line: Vec<(f64, f64)> = (0..).map(f64::from).zip(values.iter().copied()).collect();
    Figure {
        title: "Lag of rank 2 on node-1".to_owned(),
        description: "It comes 8 ms late.".to_owned(),
        time: Axis {
            label: "time, UTC".to_owned(),
            from: 0.0,
            to: 10.0,
            ticks: vec![(0.0, "00:00:00".to_owned()), (5.0, "00:00:05".to_owned())],
        },
        value: ticks::values("lag, ms", values.iter().copied()),
        band: vec![line.iter().map(|(at, _)| (*at, 0.5)).collect()],
        line: vec![line],
        spans: vec![(3.0, 8.0)],
        legend: Legend {
            line: "rank 2".to_owned(),
            band: "peers",
            spans: "incident",
        },
        message: None,
    }
}

/// Width, height and pixels of a PNG.
fn decode(picture: &Picture) -> (u32, u32, Vec<u8>) {
    assert!(picture.bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    let decoder = png::Decoder::new(std::io::Cursor::new(&picture.bytes));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

#[test]
fn a_png_has_the_fixed_size_and_a_white_background() {
    let picture = render(&figure(&[0.0, 1.0, 8.0, 8.5]), Format::Png).unwrap();
    let (width, height, pixels) = decode(&picture);
    assert_eq!((width, height), SIZE);
    let n_white = pixels
        .chunks_exact(3)
        .filter(|pixel| *pixel == [255; 3])
        .count();
    let n_pixels = pixels.len() / 3;
    assert!(n_white > n_pixels / 2, "{n_white} of {n_pixels}");
    assert!(n_white < n_pixels);
    assert!(picture.bytes.len() < 64 * 1024, "{}", picture.bytes.len());
}

#[test]
fn a_png_has_text_without_an_installed_font() {
    let mut named = figure(&[0.0, 1.0]);
    let with = decode(&render(&named, Format::Png).unwrap());
    named.title = String::new();
    assert_ne!(decode(&render(&named, Format::Png).unwrap()), with);
}

#[test]
fn an_svg_has_a_title_and_a_description_for_screen_readers() {
    let picture = render(&figure(&[0.0, 1.0]), Format::Svg).unwrap();
    let drawn = String::from_utf8(picture.bytes).unwrap();
    assert!(drawn.starts_with("<svg role=\"img\" "), "{drawn}");
    let metadata = "<title>Lag of rank 2 on node-1</title>\n<desc>It comes 8 ms late.</desc>";
    assert!(drawn.contains(metadata), "{drawn}");
    assert!(drawn.ends_with("</svg>\n"));
}

#[test]
fn drawing_is_deterministic() {
    for format in Format::ALL {
        let figure = figure(&[0.0, 1.0, 0.5]);
        assert_eq!(
            render(&figure, format).unwrap(),
            render(&figure, format).unwrap()
        );
    }
}

#[test]
fn value_ticks_are_few_and_round_for_any_values() {
    for (values, expected) in [
        (vec![], "-1.0 -0.5 0.0 0.5 1.0"),
        (vec![0.0, 8.0], "0 2 4 6 8"),
        (vec![0.0, -0.004], "-0.004 -0.003 -0.002 -0.001 0.000"),
        (vec![f64::NAN, 1.2e6], "0 500000 1000000"),
        (vec![-3.0, 17.0], "0 5 10 15"),
    ] {
        let axis = ticks::values("lag, ms", values.iter().copied());
        let shown: Vec<&str> = axis.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(shown.join(" "), expected);
        let inside = |place: &f64| (axis.from..=axis.to).contains(place);
        assert!(axis.ticks.iter().all(|(place, _)| inside(place)));
    }
}

#[test]
fn time_ticks_are_at_most_eight_and_round_for_any_span() {
    let from = 1_780_272_003;
    for (length, step) in [
        (1, 1),
        (7, 1),
        (60, 10),
        (3_600, 600),
        (86_400, 14_400),
        (30 * 86_400, 4 * 86_400),
        (900 * 86_400, 113 * 86_400),
    ] {
        let (places, found) = ticks::times(from, from + length);
        assert_eq!(found, step, "{length}");
        assert!((1..=8).contains(&places.len()), "{length}: {places:?}");
        assert!(places.iter().all(|at| (from..=from + length).contains(at)));
    }
}

#[test]
fn extreme_values_can_be_drawn() {
    for values in [[1e300, -1e300], [1e-300, 0.0], [5e-324, 0.0], [1e15, 1e15]] {
        for format in Format::ALL {
            render(&figure(&values), format).unwrap();
        }
    }
}
