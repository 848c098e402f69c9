//! `user:password@tcp(host:port)/schema?name=value`, with the grammar of Go's MySQL driver: the
//! schema starts after the last `/` and the address after the last `@`, so that a password may
//! contain either.

use bbs_database::Tls;

use super::{Dsn, DsnError, host_and_port, pairs, unescaped};

const HOST: &str = "127.0.0.1";
const PORT: u16 = 3306;
const SOCKET: &str = "/tmp/mysql.sock";

/// Parses a MySQL or MariaDB connection string.
pub(in crate::config) fn mysql(text: &str) -> Result<Dsn, DsnError> {
    let text = text.trim();
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Err(DsnError::OtherDriver);
    }
    if text.starts_with("mysql://") {
        return Err(DsnError::Form);
    }
    let (before, after) = text.rsplit_once('/').ok_or(DsnError::NoSchema)?;
    let (schema, query) = after.split_once('?').unwrap_or((after, ""));
    if schema.is_empty() {
        return Err(DsnError::NoSchema);
    }
    let (who, address) = before.rsplit_once('@').unwrap_or(("", before));
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    let mut dsn = Dsn {
        host: HOST.to_owned(),
        port: PORT,
        user: user.to_owned(),
        password: password.to_owned(),
        schema: unescaped(schema),
        ..Dsn::default()
    };
    set_endpoint(&mut dsn, address)?;
    if user.is_empty() {
        return Err(DsnError::NoUser);
    }
    for (name, value) in pairs(query) {
        match name.as_str() {
            "tls" => dsn.tls = Some(tls(&value)?),
            _ => dsn.ignored.push(name),
        }
    }
    Ok(dsn)
}

fn set_endpoint(dsn: &mut Dsn, text: &str) -> Result<(), DsnError> {
    let (protocol, address) = match text.split_once('(') {
        Some((protocol, rest)) => (protocol, rest.strip_suffix(')').ok_or(DsnError::Form)?),
        None => (text, ""),
    };
    match (protocol, address) {
        ("tcp" | "", "") => {}
        ("tcp" | "tcp4" | "tcp6", _) => (dsn.host, dsn.port) = host_and_port(address, PORT)?,
        ("unix", "") => dsn.socket = Some(SOCKET.into()),
        ("unix", path) => dsn.socket = Some(path.into()),
        _ => return Err(DsnError::Protocol),
    }
    Ok(())
}

fn tls(asked: &str) -> Result<Tls, DsnError> {
    match asked.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(Tls::Verified {
            ca_file: None,
            identity: true,
        }),
        "false" | "0" => Ok(Tls::Off),
        "skip-verify" => Ok(Tls::Required),
        "preferred" => Ok(Tls::Preferred),
        _ => Err(DsnError::Tls),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// User, password, host, port and schema.
    #[track_caller]
    fn parts(text: &str) -> [String; 5] {
        let dsn = mysql(text).unwrap();
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
            parts("diego:secret@tcp(10.0.0.5:3307)/cf"),
            ["diego", "secret", "10.0.0.5", "3307", "cf"]
        );
    }

    #[test]
    fn password_may_contain_separators() {
        let password = "p@s:s/w?o#r(d)%41&tls=no";
        let text = format!("diego:{password}@tcp(db:3307)/cf");
        assert_eq!(parts(&text), ["diego", password, "db", "3307", "cf"]);
        let text = format!("diego:{password}@unix(/run/my.sock)/cf");
        assert_eq!(mysql(&text).unwrap().password, password);
    }

    #[test]
    fn absent_parts_have_gos_defaults() {
        let expected = ["root", "", "127.0.0.1", "3306", "cf"];
        for text in [
            "root@/cf",
            "root:@tcp/cf",
            "root@tcp()/cf",
            "root@tcp(127.0.0.1)/cf",
            " root@/cf\n",
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
        assert_eq!(mysql("root@/cf").unwrap().tls, None);
    }

    #[test]
    fn sockets_and_ipv6_are_parsed() {
        let socket = |text| mysql(text).unwrap().socket.unwrap();
        assert_eq!(
            socket("root@unix(/run/mysqld/mysqld.sock)/cf"),
            PathBuf::from("/run/mysqld/mysqld.sock")
        );
        assert_eq!(socket("root@unix/cf"), PathBuf::from("/tmp/mysql.sock"));
        assert_eq!(
            parts("root@tcp([::1]:33)/cf"),
            ["root", "", "::1", "33", "cf"]
        );
    }

    #[test]
    fn tls_is_applied_and_other_parameters_are_listed_as_ignored() {
        let tls = |asked| mysql(&format!("u:p@tcp(db)/d?tls={asked}")).map(|dsn| dsn.tls.unwrap());
        assert_eq!(
            tls("true"),
            Ok(Tls::Verified {
                ca_file: None,
                identity: true
            })
        );
        assert_eq!(tls("skip-verify"), Ok(Tls::Required));
        assert_eq!(tls("preferred"), Ok(Tls::Preferred));
        assert_eq!(tls("false"), Ok(Tls::Off));
        assert_eq!(tls("mine"), Err(DsnError::Tls));
        assert_eq!(
            mysql("u@tcp(db)/d?parseTime=true&timeout=10s")
                .unwrap()
                .ignored,
            ["parseTime", "timeout"]
        );
    }

    #[test]
    fn invalid_strings_are_specific_errors() {
        for (text, error) in [
            ("", DsnError::NoSchema),
            ("diego:secret@tcp(db:3306)", DsnError::NoSchema),
            ("diego:secret@tcp(db:3306)/", DsnError::NoSchema),
            ("diego:secret@tcp(db:3306)/?tls=true", DsnError::NoSchema),
            ("tcp(db:3306)/diego", DsnError::NoUser),
            ("diego:secret@tcp(db:port)/diego", DsnError::Port),
            ("diego:secret@tcp(db:0)/diego", DsnError::Port),
            ("diego:secret@tcp(:3306)/diego", DsnError::NoAddress),
            ("diego:secret@tcp(db:3306/diego", DsnError::Form),
            ("diego:secret@udp(db:3306)/diego", DsnError::Protocol),
            ("diego:secret/diego", DsnError::Protocol),
            ("postgres://u:p@db/diego", DsnError::OtherDriver),
            ("mysql://u:p@db/diego", DsnError::Form),
        ] {
            assert_eq!(mysql(text), Err(error), "{text}");
        }
    }
}
