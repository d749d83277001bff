use super::figure::{Axis, Figure, Legend, SIZE, Tooltip};
use super::{Format, MAX_TOOLTIPS, Picture, render, ticks};

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
        tooltips: Vec::new(),
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

fn svg(figure: &Figure) -> String {
    String::from_utf8(render(figure, Format::Svg).unwrap().bytes).unwrap()
}

#[test]
fn an_svg_shows_the_tooltip_nearest_to_where_a_reader_points() {
    let mut hovered = figure(&[0.0, 8.0]);
    let tooltip = |at: f64, text: &str| Tooltip {
        at,
        text: text.to_owned(),
    };
    hovered.tooltips = vec![tooltip(0.0, "0 ms"), tooltip(5.0, "<8> & \u{1}ms")];
    let drawn = svg(&hovered);
    let columns: Vec<&str> = drawn.split("pointer-events=\"all\">").skip(1).collect();
    assert!(
        columns[0].starts_with("<title>0 ms</title></rect>"),
        "{drawn}"
    );
    assert!(columns[1].starts_with("<title>&lt;8&gt; &amp; ms</title></rect>"));
    let number = |column: &str, name: &str| -> i32 {
        let (_, value) = column.rsplit_once(&format!(" {name}=\"")).unwrap();
        value.split('"').next().unwrap().parse().unwrap()
    };
    let before: Vec<&str> = drawn.split("pointer-events=\"all\">").take(2).collect();
    let [(x, width), (next, rest)] =
        [before[0], before[1]].map(|column| (number(column, "x"), number(column, "width")));
    // The instants are at 0 and 5 of 10: the border is at a quarter of the axis.
    assert_eq!(x + width, next);
    assert!((width * 3 - rest).abs() < 4, "{width} {rest}");
}

#[test]
fn the_tooltips_of_an_svg_are_limited() {
    let mut hovered = figure(&[0.0, 8.0]);
    let tooltips = (0..5_000).map(|number| Tooltip {
        at: f64::from(number) / 500.0,
        text: String::new(),
    });
    hovered.tooltips = tooltips.collect();
    let n = svg(&hovered).matches("pointer-events").count();
    assert!(n > MAX_TOOLTIPS / 2 && n <= MAX_TOOLTIPS, "{n}");
}

#[test]
fn the_legend_names_what_is_drawn_and_has_room_for_wider_fonts() {
    let mut full = figure(&[0.0, 8.0]);
    full.legend = Legend {
        line: "lag of rank 10239 behind the median of its peers".to_owned(),
        band: "peers: \u{b1} 3 robust standard deviations",
        spans: "incident open",
    };
    let drawn = svg(&full);
    // Entries are at one height: their swatches, and their texts at 44 pixels.
    let texts: Vec<(f64, &str)> = drawn
        .split("<text x=\"")
        .filter(|text| text.contains(" y=\"44\" "))
        .map(|text| {
            let (x, rest) = text.split_once('"').unwrap();
            let words = rest
                .split_once(">\n")
                .unwrap()
                .1
                .split_once('\n')
                .unwrap()
                .0;
            (x.parse().unwrap(), words)
        })
        .collect();
    let words: Vec<&str> = texts.iter().map(|(_, words)| *words).collect();
    assert_eq!(
        words,
        [
            full.legend.line.as_str(),
            full.legend.band,
            full.legend.spans
        ]
    );
    // In DejaVu Sans, a wide font, a letter takes 7.6 pixels on average.
    let ends = texts.iter().map(|(x, words)| {
        let n = u32::try_from(words.chars().count()).unwrap();
        x + f64::from(n) * 7.6
    });
    let next = texts.iter().skip(1).map(|(x, _)| x - 28.0);
    for (end, next) in ends.zip(next.chain([f64::from(SIZE.0)])) {
        assert!(end <= next, "{texts:?}");
    }
    full.spans.clear();
    assert!(!svg(&full).contains("incident open"), "nothing is marked");
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
