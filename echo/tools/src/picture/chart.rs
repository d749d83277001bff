//! Draws a figure on any canvas that supports lines, areas and text.

use std::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBAColor, RGBColor, TextStyle};

use super::figure::{Axis, Figure};

/// Font family of the text; viewers of an SVG substitute their own font.
pub(super) const FONT: &str = "sans-serif";

const BACKGROUND: RGBColor = RGBColor(255, 255, 255);
const TEXT: RGBColor = RGBColor(33, 37, 41);
const GREY: RGBColor = RGBColor(90, 98, 104);
const GRID: RGBColor = RGBColor(226, 229, 233);
const LINE: RGBColor = RGBColor(13, 71, 161);
const BAND: RGBColor = RGBColor(120, 144, 156);
const SPAN: RGBColor = RGBColor(211, 47, 47);

const BAND_OPACITY: f64 = 0.3;
const SPAN_OPACITY: f64 = 0.14;

type Area<'a, DB> = DrawingArea<DB, Shift>;
type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<Axis, Axis>>;
type DrawResult<DB, T = ()> = Result<T, DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// Space between two entries of the legend, pixels.
const ENTRY_GAP: i32 = 12;

/// Widest text of a viewer's font, as percentage of its width in the compiled-in one.
const WIDEST_FONT: u32 = 120;

/// Integer scale factor of a drawing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale(pub(super) u32);

impl Scale {
    fn px(self, length: u32) -> u32 {
        length * self.0
    }

    fn at(self, length: i32) -> i32 {
        length * i32::try_from(self.0).unwrap_or(1)
    }

    fn text(self, size: u32, color: RGBColor) -> TextStyle<'static> {
        // The canvases expect the height of a line.
        let line_height = f64::from(self.px(size)) * 1.24;
        TextStyle {
            color: color.to_backend_color(),
            ..TextStyle::from((FONT, line_height).into_font())
        }
    }
}

/// Pixels that the axes enclose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inside {
    /// From the left to the right.
    pub(super) x: Range<i32>,
    /// From the top to the bottom.
    pub(super) y: Range<i32>,
}

/// Draws the figure. Returns where its axes are.
pub(super) fn draw<DB: DrawingBackend>(
    figure: &Figure,
    root: &DrawingArea<DB, Shift>,
    scale: Scale,
) -> DrawResult<DB, Inside> {
    root.fill(&BACKGROUND)?;
    let (head, body) = root.split_vertically(scale.px(58));
    head.draw(&Text::new(
        figure.title.clone(),
        (scale.at(16), scale.at(10)),
        scale.text(16, TEXT),
    ))?;
    legend(figure, &head, scale)?;
    let mut chart = ChartBuilder::on(&body)
        .margin_left(scale.px(10))
        .margin_right(scale.px(34))
        .margin_bottom(scale.px(6))
        .x_label_area_size(scale.px(44))
        .y_label_area_size(scale.px(60))
        .build_cartesian_2d(figure.time.clone(), figure.value.clone())?;
    spans(figure, &mut chart)?;
    axes(figure, &mut chart, scale)?;
    band(figure, &mut chart)?;
    line(figure, &mut chart, scale)?;
    let (x, y) = chart.plotting_area().get_pixel_range();
    if let Some(message) = &figure.message {
        draw_message(message, &body, scale)?;
    }
    Ok(Inside { x, y })
}

impl Ranged for Axis {
    type ValueType = f64;
    type FormatOption = NoDefaultFormatting;

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a plot is far narrower than that"
    )]
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        let (first, last) = (f64::from(limit.0), f64::from(limit.1));
        (last - first).mul_add(share, first).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.text(*value)
    }
}

/// Draws one legend entry for each kind of mark in the figure.
fn legend<DB: DrawingBackend>(
    figure: &Figure,
    head: &Area<'_, DB>,
    scale: Scale,
) -> DrawResult<DB> {
    let style = scale.text(14, GREY);
    let entries = [
        (
            figure.legend.line.as_str(),
            LINE.to_rgba(),
            !figure.line.is_empty(),
        ),
        (
            figure.legend.band,
            BAND.mix(BAND_OPACITY),
            !figure.band.is_empty(),
        ),
        (
            figure.legend.spans,
            SPAN.mix(SPAN_OPACITY),
            !figure.spans.is_empty(),
        ),
    ];
    let mut left = scale.at(16);
    for (text, color, _) in entries.into_iter().filter(|(_, _, is_there)| *is_there) {
        let middle = scale.at(44);
        let half = if text == figure.legend.line { 1 } else { 6 };
        let corners = [
            (left, middle - scale.at(half)),
            (left + scale.at(22), middle + scale.at(half)),
        ];
        head.draw(&Rectangle::new(corners, color.filled()))?;
        left += scale.at(28);
        let place = style.pos(Pos::new(HPos::Left, VPos::Center));
        head.draw(&Text::new(text.to_owned(), (left, middle), place))?;
        let (width, _) = head.estimate_text_size(text, &style)?;
        // Viewers of an SVG may have a wider font.
        left += i32::try_from(width * WIDEST_FONT / 100).unwrap_or(0) + scale.at(ENTRY_GAP);
    }
    Ok(())
}

fn axes<DB: DrawingBackend>(
    figure: &Figure,
    chart: &mut Chart<'_, DB>,
    scale: Scale,
) -> DrawResult<DB> {
    chart
        .configure_mesh()
        .set_all_tick_mark_size(scale.px(4))
        .bold_line_style(GRID.stroke_width(scale.px(1)))
        .axis_style(GREY.stroke_width(scale.px(1)))
        .label_style(scale.text(14, GREY))
        .axis_desc_style(scale.text(14, TEXT))
        .x_desc(figure.time.label.as_str())
        .y_desc(figure.value.label.as_str())
        .draw()?;
    // Zero line: the median of the peers.
    let zero = vec![(figure.time.from, 0.0), (figure.time.to, 0.0)];
    let style = GREY.stroke_width(scale.px(1));
    chart.draw_series([PathElement::new(zero, style)])?;
    Ok(())
}

fn spans<DB: DrawingBackend>(figure: &Figure, chart: &mut Chart<'_, DB>) -> DrawResult<DB> {
    let (bottom, top) = (figure.value.from, figure.value.to);
    let spans = figure.spans.iter().map(|(from, to)| {
        let corners = [(*from, top), (*to, bottom)];
        Rectangle::new(corners, SPAN.mix(SPAN_OPACITY).filled())
    });
    chart.draw_series(spans)?;
    Ok(())
}

fn band<DB: DrawingBackend>(figure: &Figure, chart: &mut Chart<'_, DB>) -> DrawResult<DB> {
    let color: RGBAColor = BAND.mix(BAND_OPACITY);
    let (bottom, top) = (figure.value.from, figure.value.to);
    let segments = figure.band.iter().map(|segment| {
        let above = segment.iter().map(|(at, half)| (*at, half.min(top)));
        let below = segment.iter().rev();
        let below = below.map(|(at, half)| (*at, (-half).max(bottom)));
        Polygon::new(above.chain(below).collect::<Vec<_>>(), color.filled())
    });
    chart.draw_series(segments)?;
    Ok(())
}

fn line<DB: DrawingBackend>(
    figure: &Figure,
    chart: &mut Chart<'_, DB>,
    scale: Scale,
) -> DrawResult<DB> {
    let style = LINE.stroke_width(scale.px(2));
    let segments = figure.line.iter();
    chart.draw_series(segments.map(|segment| PathElement::new(segment.clone(), style)))?;
    let points = figure.line.iter().flatten();
    chart.draw_series(points.map(|point| Circle::new(*point, scale.px(3), LINE.filled())))?;
    Ok(())
}

fn draw_message<DB: DrawingBackend>(
    message: &str,
    body: &Area<'_, DB>,
    scale: Scale,
) -> DrawResult<DB> {
    let (width, height) = body.dim_in_pixel();
    let middle = |length: u32| i32::try_from(length / 2).unwrap_or(0);
    let style = scale
        .text(16, TEXT)
        .pos(Pos::new(HPos::Center, VPos::Center));
    let place = (middle(width), middle(height) - scale.at(24));
    body.draw(&Text::new(message.to_owned(), place, style))
}
