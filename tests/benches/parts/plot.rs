//! Line plots as SVG files in `target/bench`.

use std::path::PathBuf;

use plotters::prelude::*;

/// The name and the points of a line.
pub type Series = (String, Vec<(f64, f64)>);

const COLORS: [RGBColor; 4] = [
    RGBColor(40, 40, 40),
    RGBColor(31, 119, 180),
    RGBColor(214, 90, 14),
    RGBColor(44, 140, 44),
];

pub fn draw(file: &str, title: &str, x: &str, y: &str, lines: &[Series]) -> PathBuf {
    let folder = crate::harness::workspace().join("target/bench");
    std::fs::create_dir_all(&folder).expect("target can be written");
    let path = folder.join(file);
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max) * 1.05;
    let root = SVGBackend::new(&path, (900, 560)).into_drawing_area();
    root.fill(&WHITE).expect("the plot can be drawn");
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most(|point| point.0), 0.0..most(|point| point.1))
        .expect("the plot can be drawn");
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .light_line_style(WHITE)
        .draw()
        .expect("the plot can be drawn");
    for ((name, points), color) in lines.iter().zip(COLORS.iter().cycle()) {
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        let drawn = chart.draw_series(line).expect("the plot can be drawn");
        let color = *color;
        drawn
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    let legend = chart.configure_series_labels();
    let mut legend = legend;
    legend
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE)
        .draw()
        .expect("the plot can be drawn");
    root.present().expect("the plot can be written");
    drop(chart);
    drop(root);
    path
}
