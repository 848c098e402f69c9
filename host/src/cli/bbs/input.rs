//! The JSON or YAML that a user gives a command, as a message of the API.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use bbs_client::json::{self, JsonMessage};
use clap::Args;
use serde_json::Value;

/// The path that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// The file of a message.
#[derive(Debug, Args)]
pub(in crate::cli) struct MessageFile {
    /// The file, JSON or YAML; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl MessageFile {
    /// The path of the file, or the name of standard input.
    pub(in crate::cli) fn path(&self) -> PathBuf {
        if self.is_stdin() {
            PathBuf::from("standard input")
        } else {
            self.file.clone()
        }
    }

    fn is_stdin(&self) -> bool {
        self.file.as_os_str() == STANDARD_INPUT
    }

    /// Reads a message in Diego's JSON form from a file of JSON or YAML, or from standard input.
    ///
    /// # Errors
    /// The file cannot be read, is neither, or has a field that the message does not have.
    pub(in crate::cli) fn message<M: JsonMessage>(&self) -> anyhow::Result<M> {
        json::from_value(self.value()?)
            .map_err(|fault| anyhow!("{} cannot be used: {fault}", self.path().display()))
    }

    fn value(&self) -> anyhow::Result<Value> {
        let path = self.path();
        let name = path.display();
        let text = if self.is_stdin() {
            bbs_files::read_open_text(io::stdin().lock())
        } else {
            bbs_files::read_text(&path)
        };
        let text = text.with_context(|| format!("cannot read {name}"))?;
        let is_json = path
            .extension()
            .is_some_and(|extension| extension == "json")
            || self.is_stdin() && text.trim_start().starts_with('{');
        let invalid =
            |form: &str| format!("{name} is not valid {form}; correct it at the place named below");
        if is_json {
            serde_json::from_str(&text).with_context(|| invalid("JSON"))
        } else {
            serde_saphyr::from_str(&text).with_context(|| invalid("YAML"))
        }
    }
}

#[cfg(test)]
mod tests {
    use bbs_client::models;

    use super::*;

    fn read(name: &str, text: &str) -> anyhow::Result<models::DesiredLrp> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        MessageFile { file: path }.message()
    }

    #[test]
    fn json_and_yaml_are_the_same_message() {
        let yaml = "process_guid: hello\ninstances: 3\nports: [8080]\naction:\n  run: { path: /bin/true, user: me }\n";
        let json = r#"{"process_guid":"hello","instances":3,"ports":[8080],"action":{"run":{"path":"/bin/true","user":"me"}}}"#;
        let lrp = read("hello.yaml", yaml).unwrap();
        assert_eq!((lrp.instances, &lrp.ports[..]), (3, &[8080][..]));
        assert_eq!(read("hello.json", json).unwrap(), lrp);
        assert_eq!(read("hello.yml", json).unwrap(), lrp);
    }

    #[test]
    fn faults_name_the_file_and_the_place() {
        for (name, text, expected) in [
            ("a.json", "{", "a.json is not valid JSON"),
            ("a.yaml", "a: [", "a.yaml is not valid YAML"),
            (
                "a.yaml",
                "instnaces: 3",
                "there is no field \"instnaces\"; there is \"instances\"",
            ),
            (
                "a.yaml",
                "process_guid: 7",
                "process_guid: 7 is not a text; put it in quotes",
            ),
            ("a.yaml", "", "null is not an object"),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let file = "absent.yaml".into();
        let error = MessageFile { file }.message::<models::DesiredLrp>();
        assert_eq!(error.unwrap_err().to_string(), "cannot read absent.yaml");
    }
}
