//! BOSH releases: the jobs of the host's, rendered as a director renders them, and packages.

pub mod bpm;
pub mod package;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use super::workspace;

/// The folder of the release.
pub fn release() -> PathBuf {
    workspace().join("host/bosh")
}

/// A rendered job.
#[derive(Debug, Deserialize)]
pub struct RenderedJob {
    /// By path below the job's folder.
    rendered: BTreeMap<String, RenderedTemplate>,
    /// Declared properties that no template looked up.
    pub unused: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RenderedTemplate {
    Text(String),
    Error(String),
}

impl RenderedJob {
    /// Renders a job of the release with these properties.
    pub fn render(job: &str, properties: &Value) -> Self {
        let instance = json!({ "name": "diego_api", "index": 2, "id": "id-1", "address": "10.0.0.1", "deployment": "cf" });
        let input = json!({ "job": release().join("jobs").join(job), "properties": properties, "instance": instance });
        let mut ruby = Command::new("ruby")
            .arg(workspace().join("tests/harness/bosh/render.rb"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`ruby` is installed; `tests/run` does that");
        ruby.stdin
            .take()
            .expect("a pipe")
            .write_all(input.to_string().as_bytes())
            .expect("ruby reads its input");
        let output = ruby.wait_with_output().expect("ruby ends");
        serde_json::from_slice(&output.stdout).expect("ruby renders the job")
    }

    /// The text of a template that must render.
    #[track_caller]
    pub fn text(&self, path: &str) -> &str {
        match &self.rendered[path] {
            RenderedTemplate::Text(text) => text,
            RenderedTemplate::Error(error) => panic!("{path}: {error}"),
        }
    }

    /// The texts of all templates, which must render.
    #[track_caller]
    pub fn texts(&self) -> BTreeMap<&str, &str> {
        self.rendered
            .keys()
            .map(|path| (path.as_str(), self.text(path)))
            .collect()
    }

    /// The errors of the templates that do not render.
    pub fn errors(&self) -> Vec<&str> {
        let errors = self
            .rendered
            .values()
            .filter_map(|template| match template {
                RenderedTemplate::Error(error) => Some(error.as_str()),
                RenderedTemplate::Text(_) => None,
            });
        errors.collect()
    }
}
