//! The JSON or YAML that a user gives a command, as a message of the API.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use bbs_client::json::{self, JsonMessage};
use clap::Args;
use serde_json::Value;

/// The path that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Largest size of a message. A record has at most 5 MiB as it is stored, and JSON may write a byte
/// of it as six.
const MESSAGE_BYTES: u64 = 32 << 20;
/// Most nodes of YAML, and collections inside each other. An LRP with actions as deep as a BBS of
/// this project accepts has 124, and `serde_json` reads 127.
const YAML_NODES: usize = 2_000_000;
const YAML_DEPTH: usize = 128;

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
        let unusable =
            |fault: &dyn Display| anyhow!("{} cannot be used: {fault}", self.path().display());
        match self.value()? {
            Value::Null => Err(unusable(&"it is empty")),
            value => json::from_value(value).map_err(|fault| unusable(&fault)),
        }
    }

    fn value(&self) -> anyhow::Result<Value> {
        let path = self.path();
        let name = path.display();
        let text = if self.is_stdin() {
            bbs_files::read_open_text(io::stdin().lock(), MESSAGE_BYTES)
        } else {
            bbs_files::open(&path).and_then(|file| bbs_files::read_open_text(file, MESSAGE_BYTES))
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
            serde_saphyr::from_str_with_options(&text, yaml_options())
                .with_context(|| invalid("YAML"))
        }
    }
}

fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: YAML_DEPTH,
            max_nodes: YAML_NODES,
            // Each node has at most a beginning and an end.
            max_events: 2 * YAML_NODES,
        },
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
    fn record_as_large_as_the_api_accepts_can_be_read() {
        let annotation = "\u{1}".repeat(5 << 20);
        let json = serde_json::json!({ "process_guid": "hello", "annotation": annotation });
        let lrp = read("a.json", &json.to_string()).unwrap();
        assert_eq!(lrp.annotation.len(), annotation.len());

        let ports = 300_000;
        let yaml = format!("process_guid: hello\nports: [{}]\n", "1,".repeat(ports));
        assert_eq!(read("a.yaml", &yaml).unwrap().ports.len(), ports);

        let larger = " ".repeat(usize::try_from(MESSAGE_BYTES).unwrap() + 1);
        let error = read("a.json", &larger).unwrap_err();
        assert!(
            format!("{error:#}").contains("it is larger than 33554432 bytes"),
            "{error:#}"
        );
    }

    #[test]
    fn actions_as_deep_as_the_api_accepts_can_be_read() {
        let innermost =
            r#"{"run":{"path":"/bin/true","user":"me","env":[{"name":"A","value":"1"}]}}"#;
        let before = r#"{"serial":{"actions":["#.repeat(39);
        let action = format!("{before}{innermost}{}", "]}}".repeat(39));
        let text = format!(r#"{{"process_guid":"hello","sidecars":[{{"action":{action}}}]}}"#);
        // The stack of a main thread, on which commands read files.
        let reading = std::thread::Builder::new().stack_size(8 << 20);
        let read_both = move || ["a.json", "a.yaml"].map(|name| read(name, &text).unwrap());
        let [json, yaml] = reading.spawn(read_both).unwrap().join().unwrap();
        assert_eq!(json, yaml);
        assert!(json.sidecars[0].action.is_some());
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
            ("a.yaml", "", "a.yaml cannot be used: it is empty"),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let file = "absent.yaml".into();
        let error = MessageFile { file }.message::<models::DesiredLrp>();
        assert_eq!(error.unwrap_err().to_string(), "cannot read absent.yaml");
    }
}
