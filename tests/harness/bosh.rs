//! BOSH releases: the jobs of the host's, rendered as a director renders them, and packages.

pub mod bpm;
pub mod package;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

use serde::Deserialize;
use serde_json::{Value, json};

use super::workspace;

/// The folder of the release.
pub fn release() -> PathBuf {
    workspace().join("host/bosh")
}

/// The Ruby process that renders the jobs of all tests, since its start takes most of the time of a
/// rendering. It ends with the test process, which closes the pipe.
struct Renderer {
    ruby: Child,
    output: BufReader<ChildStdout>,
}

impl Renderer {
    fn start() -> Self {
        let mut ruby = Command::new("ruby")
            .arg(workspace().join("tests/harness/bosh/render.rb"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`ruby` is installed; `tests/run` does that");
        let output = BufReader::new(ruby.stdout.take().expect("a pipe"));
        Self { ruby, output }
    }

    /// The line with which `render.rb` answers.
    fn answer(&mut self, input: &Value) -> String {
        let pipe = self.ruby.stdin.as_mut().expect("a pipe");
        pipe.write_all(format!("{input}\n").as_bytes())
            .expect("ruby reads its input");
        let mut answer = String::new();
        self.output
            .read_line(&mut answer)
            .expect("ruby renders the job");
        answer
    }
}

/// An answer of `render.rb`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rendering {
    Job(RenderedJob),
    Error(String),
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
    #[track_caller]
    pub fn render(job: &str, properties: &Value) -> Self {
        static RENDERER: LazyLock<Mutex<Renderer>> =
            LazyLock::new(|| Mutex::new(Renderer::start()));
        let instance = json!({ "name": "diego_api", "index": 2, "id": "id-1", "address": "10.0.0.1", "deployment": "cf" });
        let input = json!({ "job": release().join("jobs").join(job), "properties": properties, "instance": instance });
        let answer = RENDERER.lock().expect("ruby has not failed").answer(&input);
        match serde_json::from_str(&answer).expect("ruby renders the job") {
            Rendering::Job(rendered) => rendered,
            Rendering::Error(error) => panic!("{job}: {error}"),
        }
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
