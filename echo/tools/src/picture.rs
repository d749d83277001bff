//! Plots of answers, drawn in process and without dependencies on the host: the only font is
//! embedded.
//!
//! The content is decided as data ([`figure`], [`ticks`]), and the same code draws it on either
//! canvas (`chart`).

use std::borrow::Cow;
use std::io;
use std::sync::OnceLock;

use plotters::coord::ranged1d::Ranged;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::prelude::{BitMapBackend, SVGBackend};
use plotters::style::{FontStyle, register_font};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use chart::{FONT, Inside, Scale};
use figure::{Figure, SIZE, Tooltip};

mod chart;
pub mod figure;
pub mod ticks;

/// Supersampling factor of a PNG in both directions; the mean of the pixels is smooth.
const SUPERSAMPLING: u32 = 3;

/// Maximum number of texts that a plot shows where a reader points.
const MAX_TOOLTIPS: usize = 300;

/// Channels per pixel.
const CHANNELS: usize = 3;

/// Image format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Bitmap.
    Png,
    /// Vector graphics.
    Svg,
}

/// A drawn plot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Image format.
    pub format: Format,
    /// Content of the image file.
    pub bytes: Vec<u8>,
}

/// Error of drawing, which is always a defect of Echo.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// The embedded font is invalid.
    #[error("the embedded font is invalid")]
    Font,
    /// The canvas reported an error.
    #[error("the canvas failed: {0}")]
    Canvas(String),
    /// The pixels cannot be encoded.
    #[error("the pixels cannot be encoded")]
    Png(#[from] png::EncodingError),
    /// The drawing task was aborted.
    #[error("drawing was aborted")]
    Aborted(#[source] io::Error),
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Png, Self::Svg];

    /// Name in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Svg => "svg",
        }
    }

    /// Media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Svg => "image/svg+xml",
        }
    }
}

impl JsonSchema for Format {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("PictureFormat")
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Self::ALL.map(Self::name) })
    }
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Canvas(error.to_string())
    }
}

/// Draws a figure.
pub fn render(figure: &Figure, format: Format) -> Result<Picture, DrawError> {
    static FONT_IS_READ: OnceLock<bool> = OnceLock::new();
    let font = include_bytes!("picture/font/Roboto-Latin.ttf");
    let read = || register_font(FONT, FontStyle::Normal, font).is_ok();
    if !FONT_IS_READ.get_or_init(read) {
        return Err(DrawError::Font);
    }
    let bytes = match format {
        Format::Svg => svg(figure)?.into_bytes(),
        Format::Png => png(figure)?,
    };
    Ok(Picture { format, bytes })
}

fn svg(figure: &Figure) -> Result<String, DrawError> {
    let mut drawn = String::new();
    let inside = {
        let root = SVGBackend::with_string(&mut drawn, SIZE).into_drawing_area();
        let inside = chart::draw(figure, &root, Scale(1))?;
        root.present()?;
        inside
    };
    // Screen readers look for these elements.
    let (title, description) = (escape_xml(&figure.title), escape_xml(&figure.description));
    let metadata = format!("\n<title>{title}</title>\n<desc>{description}</desc>\n");
    let drawn = drawn.replacen("<svg ", "<svg role=\"img\" ", 1);
    let drawn = drawn.replacen(">\n", &format!(">{metadata}"), 1);
    let hovered = hovered(figure, &inside);
    Ok(drawn.replacen("</svg>", &format!("{hovered}</svg>"), 1))
}

/// Returns invisible columns, one around each tooltip, over which viewers show its text.
fn hovered(figure: &Figure, inside: &Inside) -> String {
    let step = figure.tooltips.len().div_ceil(MAX_TOOLTIPS).max(1);
    let shown: Vec<&Tooltip> = figure.tooltips.iter().step_by(step).collect();
    let pixel = |at: f64| figure.time.map(&at, (inside.x.start, inside.x.end));
    let pairs = shown.iter().zip(shown.iter().skip(1));
    let borders = pairs.map(|(one, next)| pixel(f64::midpoint(one.at, next.at)));
    let ends: Vec<i32> = borders.chain([inside.x.end]).collect();
    let starts = [inside.x.start].into_iter().chain(ends.iter().copied());
    let columns = shown.iter().zip(starts.zip(&ends)).map(|(one, (from, to))| {
        format!(
            "<rect x=\"{from}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" pointer-events=\"all\">\
             <title>{}</title></rect>\n",
            inside.y.start,
            to - from,
            inside.y.end - inside.y.start,
            escape_xml(&one.text)
        )
    });
    columns.collect::<Vec<String>>().concat()
}

fn png(figure: &Figure) -> Result<Vec<u8>, DrawError> {
    let (width, height) = SIZE;
    let canvas_size = (width * SUPERSAMPLING, height * SUPERSAMPLING);
    let mut pixels = vec![0; bytes_of(canvas_size)];
    {
        let root = BitMapBackend::with_buffer(&mut pixels, canvas_size).into_drawing_area();
        chart::draw(figure, &root, Scale(SUPERSAMPLING))?;
        root.present()?;
    }
    let mut encoded = Vec::new();
    let mut encoder = png::Encoder::new(&mut encoded, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.add_itxt_chunk("Title".to_owned(), figure.title.clone())?;
    encoder.add_itxt_chunk("Description".to_owned(), figure.description.clone())?;
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&downsample(&pixels))?;
    writer.finish()?;
    Ok(encoded)
}

fn bytes_of((width, height): (u32, u32)) -> usize {
    [width, height]
        .into_iter()
        .filter_map(|length| usize::try_from(length).ok())
        .product::<usize>()
        * CHANNELS
}

/// Averages each square of supersampled pixels.
fn downsample(fine: &[u8]) -> Vec<u8> {
    let width = bytes_of((SIZE.0, 1));
    let n = usize::try_from(SUPERSAMPLING).unwrap_or(1);
    let mut pixels = Vec::with_capacity(bytes_of(SIZE));
    for rows in fine.chunks_exact(width * n * n) {
        let mut sums = vec![0_u32; width];
        for row in rows.chunks_exact(width * n) {
            let squares = sums.chunks_exact_mut(CHANNELS);
            for (sum, square) in squares.zip(row.chunks_exact(CHANNELS * n)) {
                for pixel in square.chunks_exact(CHANNELS) {
                    for (sum, channel) in sum.iter_mut().zip(pixel) {
                        *sum += u32::from(*channel);
                    }
                }
            }
        }
        let mean =
            |sum: &u32| u8::try_from(sum / (SUPERSAMPLING * SUPERSAMPLING)).unwrap_or(u8::MAX);
        pixels.extend(sums.iter().map(mean));
    }
    pixels
}

/// Escapes a text for XML.
fn escape_xml(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
