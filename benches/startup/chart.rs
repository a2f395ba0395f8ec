//! The chart: a bar for each median and a line to the 95th percentile, on a logarithmic scale.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::measure::Figures;

const WIDTH: u32 = 900;
const ROW: u32 = 26;
const TOP: u32 = 56;
const LABELS: i32 = 270;
const RIGHT: i32 = 90;

const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0x8b);
const THEIRS: RGBColor = RGBColor(0xa9, 0xb4, 0xbd);
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe3, 0xe3, 0xe3);

/// Writes the chart as SVG.
pub fn draw(path: &Path, figures: &[Figures]) -> Result<(), String> {
    let rows: Vec<(&str, f64, f64)> = figures
        .iter()
        .filter_map(|one| {
            let ms = |part: f64| one.warm.quantile(part).map(|us| us / 1000.0);
            Some((one.name, ms(0.5)?, ms(0.95)?))
        })
        .collect();
    let most = rows.iter().map(|row| row.2).fold(1.0, f64::max);
    let least = rows.iter().map(|row| row.1).fold(1.0, f64::min) / 1.5;
    let height = TOP + ROW * rows.len() as u32 + 34;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    let failed = |error: DrawingAreaErrorKind<std::io::Error>| format!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(failed)?;
    let font = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let at = |horizontal, vertical, size| font(size).pos(Pos::new(horizontal, vertical));
    let title = "From the command to its end: median (bar) and 95th percentile (line), milliseconds";
    area.draw_text(title, &at(HPos::Left, VPos::Top, 16), (14, 14)).map_err(failed)?;
    let span = f64::from(WIDTH as i32 - LABELS - RIGHT);
    let x = |ms: f64| LABELS + ((ms / least).ln() / (most / least).ln() * span) as i32;
    let bottom = (TOP + ROW * rows.len() as u32) as i32;
    for decade in [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0] {
        if decade > least && decade <= most {
            let line = PathElement::new(vec![(x(decade), TOP as i32 - 6), (x(decade), bottom)], GRID);
            area.draw(&line).map_err(failed)?;
            let text = format!("{decade}");
            area.draw_text(&text, &at(HPos::Center, VPos::Top, 12), (x(decade), bottom + 6)).map_err(failed)?;
        }
    }
    for (index, (name, median, p95)) in rows.iter().enumerate() {
        let middle = (TOP + ROW * index as u32 + ROW / 2) as i32;
        let color = if name.contains("stockade") { OURS } else { THEIRS };
        area.draw_text(name, &at(HPos::Right, VPos::Center, 14), (LABELS - 8, middle)).map_err(failed)?;
        let bar = Rectangle::new([(LABELS, middle - 8), (x(*median), middle + 8)], color.filled());
        area.draw(&bar).map_err(failed)?;
        area.draw(&PathElement::new(vec![(x(*median), middle), (x(*p95), middle)], INK)).map_err(failed)?;
        let value = if *median < 10.0 { format!("{median:.2}") } else { format!("{median:.0}") };
        area.draw_text(&value, &at(HPos::Left, VPos::Center, 13), (x(*p95) + 6, middle)).map_err(failed)?;
    }
    area.present().map_err(failed)
}
