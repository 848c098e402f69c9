//! Connection strings in the place of a path of SQLite.

use super::*;

#[test]
fn connection_string_of_a_server_is_no_path_of_sqlite_and_is_not_shown() {
    for text in [
        "postgres://u:hunter2@db/d",
        " mysql://u:hunter2@db/d",
        "u:hunter2@tcp(db:3306)/d",
        "u:hunter2@unix(/s)/d",
    ] {
        for driver in ["", r#""database_driver":"sqlite","#] {
            let json =
                format!(r#"{{{driver}"database_connection_string":"{text}","modules_dir":"m"}}"#);
            let fault = read(&json).unwrap_err();
            let shown = fault.to_string();
            assert!(
                shown.contains("`database_driver`") && !shown.contains("hunter2"),
                "{shown}"
            );
        }
    }
}

#[test]
fn address_of_sqlite_is_rejected_in_the_place_of_a_path() {
    for text in [
        "sqlite:///var/bbs.db",
        "sqlite:bbs.db",
        "file:bbs.db?mode=rwc",
    ] {
        let json = format!(r#"{{"database_connection_string":"{text}","modules_dir":"m"}}"#);
        let shown = read(&json).unwrap_err().to_string();
        assert!(
            shown.contains("without `sqlite:`")
                && shown.contains("the path of the SQLite database file"),
            "{shown}"
        );
    }
}
