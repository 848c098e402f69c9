//! PostgreSQL's two forms: `postgres://user:password@host:port/schema?name=value`, in which BOSH
//! does not encode the password, and `host=… user=… password='…' dbname=…`.

use std::path::PathBuf;

use bbs_database::{ClientCertificate, Tls};

use super::{Dsn, DsnError, host_and_port, number, pairs, unescaped};

const HOST: &str = "localhost";
const PORT: u16 = 5432;
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// Parameters of other drivers that have no effect on this host's behaviour.
const FOREIGN: [&str; 13] = [
    "application_name",
    "binary_parameters",
    "channel_binding",
    "connect_timeout",
    "description_cache_capacity",
    "fallback_application_name",
    "gssencmode",
    "sslcompression",
    "sslinline",
    "sslnegotiation",
    "sslsni",
    "statement_cache_capacity",
    "target_session_attrs",
];

const PREPARED: &str = "this host prepares its statements, so a pooler has to be in session mode";

/// Run-time parameters on which the form of statements, values and transactions of this host
/// depends.
const CHOSEN_BY_THE_HOST: [&str; 7] = [
    "bytea_output",
    "client_encoding",
    "datestyle",
    "default_transaction_isolation",
    "intervalstyle",
    "row_security",
    "standard_conforming_strings",
];

/// Parses a PostgreSQL connection string.
pub(in crate::config) fn postgres(text: &str) -> Result<Dsn, DsnError> {
    let text = text.trim();
    if let Some(rest) = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) {
        from_url(rest)
    } else if text.contains("@tcp(") || text.contains("@unix(") {
        Err(DsnError::OtherDriver)
    } else {
        Draft::new().with(words(text)?)?.finish()
    }
}

fn from_url(rest: &str) -> Result<Dsn, DsnError> {
    // A password or a parameter may contain `@`, so the address starts after the last `@` that is
    // followed by a host and a schema.
    let ats: Vec<usize> = rest.match_indices('@').map(|(at, _)| at).collect();
    let at = ats
        .iter()
        .rev()
        .find(|at| is_endpoint(&rest[**at + 1..]))
        .or(ats.last());
    let (who, place) = at.map_or(("", rest), |at| (&rest[..*at], &rest[at + 1..]));
    let (before_query, query) = place.split_once('?').unwrap_or((place, ""));
    let (address, schema) = before_query.split_once('/').unwrap_or((before_query, ""));
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    let mut draft = Draft::new();
    draft.dsn.user = unescaped(user);
    draft.dsn.password = unescaped(password);
    draft.dsn.schema = unescaped(schema);
    if address.contains(',') {
        return Err(DsnError::SeveralHosts);
    }
    if !address.is_empty() {
        let (host, port) = host_and_port(address, PORT)?;
        draft.dsn.host = unescaped(&host);
        draft.dsn.port = port;
    }
    draft.with(pairs(query))?.finish()
}

fn is_endpoint(text: &str) -> bool {
    let end = text.find(['/', '?']).unwrap_or(text.len());
    let is_address = text[..end]
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.,:[]%".contains(c));
    is_address && text[end..].starts_with(['/', '?'])
}

/// A connection string whose parameters are not read completely. The host may be the folder of a
/// socket.
#[derive(Default)]
struct Draft {
    dsn: Dsn,
    ssl_mode: Option<String>,
    ca_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_key: Option<PathBuf>,
}

impl Draft {
    fn new() -> Self {
        let mut draft = Self::default();
        draft.dsn.host = HOST.to_owned();
        draft.dsn.port = PORT;
        draft
    }

    fn with(
        mut self,
        parameters: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, DsnError> {
        for (name, value) in parameters {
            match name.as_str() {
                "user" => self.dsn.user = value,
                "password" => self.dsn.password = value,
                "host" | "hostaddr" if value.contains(',') => return Err(DsnError::SeveralHosts),
                "host" | "hostaddr" => self.dsn.host = value,
                "port" => self.dsn.port = number(&value)?,
                "dbname" => self.dsn.schema = value,
                "sslmode" => self.ssl_mode = Some(value),
                "sslrootcert" => self.ca_file = Some(value.into()),
                foreign if FOREIGN.contains(&foreign) || foreign.starts_with("pool_") => {
                    self.dsn.ignored.push(name)
                }
                // Diego's driver prepares no statements then, which a pooler in transaction mode
                // needs.
                "default_query_exec_mode" => self.dsn.ignored.push(format!("{name}: {PREPARED}")),
                "sslcert" => self.client_certificate = Some(value.into()),
                "sslkey" => self.client_key = Some(value.into()),
                "options" => {
                    for (name, value) in options(&value)? {
                        self.set(name, value)?;
                    }
                }
                _ => self.set(name, value)?,
            }
        }
        Ok(self)
    }

    /// Any other parameter is one of the session, as for Diego's driver.
    fn set(&mut self, name: String, value: String) -> Result<(), DsnError> {
        if name.is_empty()
            || !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
        {
            return Err(DsnError::Form);
        }
        if CHOSEN_BY_THE_HOST.contains(&&*name.to_ascii_lowercase()) {
            return Err(DsnError::Setting(name));
        }
        self.dsn.settings.push((name, value));
        Ok(())
    }

    fn finish(self) -> Result<Dsn, DsnError> {
        let tls = self.tls()?;
        let Self {
            dsn,
            client_certificate,
            client_key,
            ..
        } = self;
        if dsn.schema.is_empty() {
            return Err(DsnError::NoSchema);
        }
        if dsn.user.is_empty() {
            return Err(DsnError::NoUser);
        }
        let (host, socket) = if dsn.host.starts_with('/') {
            (HOST.to_owned(), Some(dsn.host.into()))
        } else {
            (dsn.host, None)
        };
        let client_certificate = match (client_certificate, client_key) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (None, None) => None,
            _ => return Err(DsnError::ClientCertificate),
        };
        Ok(Dsn {
            host,
            socket,
            tls,
            client_certificate,
            ..dsn
        })
    }

    fn tls(&self) -> Result<Option<Tls>, DsnError> {
        let verified = |identity| Tls::Verified {
            ca_file: self.ca_file.clone(),
            identity,
        };
        Ok(match self.ssl_mode.as_deref() {
            None => None,
            Some("disable") => Some(Tls::Off),
            Some("allow" | "prefer") => Some(Tls::Preferred),
            // As libpq: with a root certificate, `require` verifies like `verify-ca`.
            Some("require") if self.ca_file.is_some() => Some(verified(false)),
            Some("require") => Some(Tls::Required),
            Some("verify-ca") => Some(verified(false)),
            Some("verify-full") => Some(verified(true)),
            Some(_) => return Err(DsnError::SslMode),
        })
    }
}

/// Parses the settings of `options`, which the server takes as its own command line: `-c
/// name=value`, `-cname=value` and `--name=value`.
fn options(text: &str) -> Result<Vec<(String, String)>, DsnError> {
    if text.contains('\\') {
        return Err(DsnError::Options);
    }
    let mut settings = Vec::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let setting = match word {
            "-c" => words.next(),
            _ => word.strip_prefix("-c").or_else(|| word.strip_prefix("--")),
        };
        let (name, value) = setting
            .and_then(|setting| setting.split_once('='))
            .ok_or(DsnError::Options)?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Parses `name = value` pairs; a value with spaces is in single quotes, and a backslash escapes
/// the next character.
fn words(text: &str) -> Result<Vec<(String, String)>, DsnError> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(DsnError::Form)?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(DsnError::Form);
        }
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('\'') {
            Some(quoted) => value_until(quoted, |c| c == '\'').ok_or(DsnError::Quote)?,
            None => value_until(after, char::is_whitespace).unwrap_or_else(|| (plain(after), "")),
        };
        found.push((name.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(found)
}

/// Returns the value up to the first unescaped end character, and the text after it.
fn value_until(text: &str, is_end: impl Fn(char) -> bool) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.push(letters.next()?.1),
            end if is_end(end) => return Some((value, &text[at + end.len_utf8()..])),
            other => value.push(other),
        }
    }
    None
}

fn plain(text: &str) -> String {
    let mut letters = text.chars();
    let mut value = String::new();
    while let Some(letter) = letters.next() {
        value.extend(if letter == '\\' {
            letters.next()
        } else {
            Some(letter)
        });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// User, password, host, port and schema.
    #[track_caller]
    fn parts(text: &str) -> [String; 5] {
        let dsn = postgres(text).unwrap();
        [
            dsn.user,
            dsn.password,
            dsn.host,
            dsn.port.to_string(),
            dsn.schema,
        ]
    }

    #[test]
    fn boshs_notation_is_parsed() {
        assert_eq!(
            parts("postgres://diego:secret@10.0.0.5:5433/cf"),
            ["diego", "secret", "10.0.0.5", "5433", "cf"]
        );
        let expected = ["diego", "p@s:s/w?o#rd%", "db", "5433", "cf"];
        assert_eq!(
            parts("postgres://diego:p@s:s/w?o#rd%@db:5433/cf?sslmode=require"),
            expected
        );
    }

    #[test]
    fn percent_encoding_is_decoded_once() {
        assert_eq!(
            parts("postgresql://u:p%40s%2540@db/d"),
            ["u", "p@s%40", "db", "5432", "d"]
        );
        assert_eq!(
            parts("postgres://u:p@db/d?application_name=a@b"),
            ["u", "p", "db", "5432", "d"]
        );
    }

    #[test]
    fn keyword_value_form_is_parsed() {
        let expected = ["diego", "p@ s's", "db", "5432", "cf"];
        assert_eq!(
            parts(r"host=db user=diego password='p@ s\'s' dbname = cf sslmode=disable"),
            expected
        );
        assert_eq!(
            parts(r"user=diego dbname=cf password=a\ b"),
            ["diego", "a b", "localhost", "5432", "cf"]
        );
    }

    #[test]
    fn sockets_and_ipv6_are_parsed() {
        for text in [
            "host=/run/pg port=5433 user=u dbname=d",
            "postgres://u@%2Frun%2Fpg:5433/d",
            "postgres://u@/d?host=/run/pg&port=5433",
        ] {
            let dsn = postgres(text).unwrap();
            assert_eq!(
                (dsn.socket.unwrap(), dsn.port),
                (PathBuf::from("/run/pg"), 5433),
                "{text}"
            );
        }
        assert_eq!(
            parts("postgres://u@[::1]:5433/d"),
            ["u", "", "::1", "5433", "d"]
        );
    }

    #[test]
    fn sslmode_has_libpqs_meaning() {
        let tls = |query: &str| postgres(&format!("postgres://u@db/d{query}")).map(|dsn| dsn.tls);
        let verified = |ca: Option<&str>, identity| {
            Ok(Some(Tls::Verified {
                ca_file: ca.map(PathBuf::from),
                identity,
            }))
        };
        assert_eq!(tls(""), Ok(None));
        assert_eq!(tls("?sslmode=disable"), Ok(Some(Tls::Off)));
        assert_eq!(tls("?sslmode=prefer"), Ok(Some(Tls::Preferred)));
        assert_eq!(tls("?sslmode=require"), Ok(Some(Tls::Required)));
        assert_eq!(
            tls("?sslmode=require&sslrootcert=/ca"),
            verified(Some("/ca"), false)
        );
        assert_eq!(tls("?sslmode=verify-ca"), verified(None, false));
        assert_eq!(
            tls("?sslrootcert=/ca&sslmode=verify-full"),
            verified(Some("/ca"), true)
        );
        assert_eq!(tls("?sslmode=on"), Err(DsnError::SslMode));
    }

    #[test]
    fn other_drivers_parameters_are_ignored() {
        let dsn = postgres("postgres://u@db/d?pool_max_conns=3&connect_timeout=5").unwrap();
        assert_eq!(dsn.ignored, ["pool_max_conns", "connect_timeout"]);
    }

    #[test]
    fn other_parameters_and_options_are_settings_of_the_session() {
        let settings =
            |query: &str| postgres(&format!("postgres://u@db/d?{query}")).map(|dsn| dsn.settings);
        let pairs = |pairs: &[(&str, &str)]| {
            Ok(pairs
                .iter()
                .map(|(a, b)| (a.to_string(), b.to_string()))
                .collect())
        };
        assert_eq!(
            settings("search_path=diego,public"),
            pairs(&[("search_path", "diego,public")])
        );
        assert_eq!(
            settings("options=-c%20search_path%3Ddiego%20--lock-timeout=5s+-cwork_mem=1MB"),
            pairs(&[
                ("search_path", "diego"),
                ("lock_timeout", "5s"),
                ("work_mem", "1MB")
            ])
        );
        for options in [
            "search_path=x",
            "-c",
            "-c%20search_path",
            "-x%20a=b",
            "-c%20search_path=a%5C%20b",
        ] {
            assert_eq!(
                settings(&format!("options={options}")),
                Err(DsnError::Options),
                "{options}"
            );
        }
    }

    #[test]
    fn settings_that_the_host_chooses_are_rejected() {
        for setting in ["row_security", "DateStyle", "client_encoding"] {
            for text in [format!("{setting}=x"), format!("options=-c%20{setting}=x")] {
                let refused = postgres(&format!("postgres://u@db/d?{text}"));
                assert_eq!(
                    refused,
                    Err(DsnError::Setting(setting.to_owned())),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn mode_of_statements_is_ignored_with_its_reason() {
        let dsn = postgres("postgres://u@db/d?default_query_exec_mode=exec&sslsni=0").unwrap();
        assert_eq!(
            dsn.ignored,
            [&format!("default_query_exec_mode: {PREPARED}"), "sslsni"]
        );
        assert_eq!(dsn.settings, []);
    }

    #[test]
    fn client_certificate_needs_its_key() {
        let parsed = |query: &str| {
            postgres(&format!("postgres://u@db/d?{query}")).map(|dsn| dsn.client_certificate)
        };
        let both = ClientCertificate {
            certificate: "c.crt".into(),
            key: "c.key".into(),
        };
        assert_eq!(parsed("sslcert=c.crt&sslkey=c.key"), Ok(Some(both)));
        for one in ["sslcert=c.crt", "sslkey=c.key"] {
            assert_eq!(parsed(one), Err(DsnError::ClientCertificate));
        }
    }

    #[test]
    fn invalid_strings_are_specific_errors() {
        for (text, error) in [
            ("", DsnError::NoSchema),
            ("postgres://u:p@db", DsnError::NoSchema),
            ("postgres://u:p@db/", DsnError::NoSchema),
            ("postgres://db/d", DsnError::NoUser),
            ("postgres://u:p@db:x/d", DsnError::Port),
            ("postgres://u:p@db:0/d", DsnError::Port),
            ("postgres://u:p@a,b/d", DsnError::SeveralHosts),
            ("host=a,b dbname=d", DsnError::SeveralHosts),
            ("host=db dbname='d", DsnError::Quote),
            ("host=db dbname", DsnError::Form),
            ("a database", DsnError::Form),
            ("u:p@tcp(db:3306)/d", DsnError::OtherDriver),
        ] {
            assert_eq!(postgres(text), Err(error), "{text}");
        }
    }
}
