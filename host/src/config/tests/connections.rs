//! The address of the database, its certificates, and the limits of its connections.

use std::time::Duration;

use bbs_database::{ConnectionLimits, Dialect, Tls};

use super::*;

#[test]
fn connection_string_sets_the_servers_address() {
    let mysql = on_mysql("");
    assert_eq!(
        (mysql.dialect, &*mysql.host, mysql.port),
        (Dialect::Mysql, "db", 3306)
    );
    assert_eq!(
        (&*mysql.user, mysql.password.as_str(), &*mysql.database),
        ("diego", "p@ss", "cf")
    );
    let postgres = server("postgres", "postgres://diego:p@ss@db:5433/cf", "");
    assert_eq!(
        (postgres.dialect, postgres.port, postgres.password.as_str()),
        (Dialect::Postgres, 5433, "p@ss")
    );
}

#[test]
fn certificate_in_the_file_overrides_the_connection_string() {
    let ca = |file: &str, identity| Tls::Verified {
        ca_file: Some(Path::new("/etc/bbs").join(file)),
        identity,
    };
    assert_eq!(on_mysql("").tls, Tls::Off);
    assert_eq!(on_mysql(r#","sql_ca_cert_file":"""#).tls, Tls::Off);
    assert_eq!(
        on_mysql(r#","sql_ca_cert_file":"sql.crt""#).tls,
        ca("sql.crt", false)
    );
    let both = r#","sql_ca_cert_file":"/sql.crt","sql_enable_identity_verification":true"#;
    assert_eq!(on_mysql(both).tls, ca("/sql.crt", true));
    assert_eq!(
        on_mysql(r#","sql_enable_identity_verification":true"#).tls,
        Tls::Off,
        "as for Diego"
    );
    let url = "postgres://u:p@db/d?sslmode=require";
    assert_eq!(
        server("postgres", "postgres://u:p@db/d", "").tls,
        Tls::Preferred
    );
    assert_eq!(server("postgres", url, "").tls, Tls::Required);
    assert_eq!(server("postgres", url, both).tls, ca("/sql.crt", true));
}

#[test]
fn connection_limits_and_timeouts_are_applied() {
    let default = on_mysql("").limits;
    assert_eq!(
        (default.max_connections, default.lease_connections),
        (97, 3),
        "100 in all"
    );
    assert_eq!((default.min_connections, default.max_lifetime), (0, None));
    let given = on_mysql(
        r#","max_open_database_connections":200,"max_idle_database_connections":200,
           "max_database_connection_lifetime":"1h","db_connection_timeout":"7s","db_read_timeout":"1m",
           "db_write_timeout":"2m","lock_ttl":"20s""#,
    );
    assert_eq!(
        (given.limits.max_connections, given.limits.lease_connections),
        (197, 3),
        "200 in all"
    );
    assert_eq!(given.limits.min_connections, 10);
    assert_eq!(given.limits.max_lifetime, Some(Duration::from_secs(3600)));
    assert_eq!(given.limits.connect_timeout, Duration::from_secs(7));
    assert_eq!(given.limits.statement_timeout, Duration::from_secs(120));
    assert_eq!(
        given.limits.idle_in_transaction_timeout,
        Duration::from_secs(10)
    );
    let few = on_mysql(
        r#","max_open_database_connections":4,"max_idle_database_connections":50,"lock_ttl":"1s""#,
    );
    assert_eq!(
        (
            few.limits.max_connections,
            few.limits.lease_connections,
            few.limits.min_connections
        ),
        (3, 1, 3)
    );
    assert_eq!(
        few.limits.idle_in_transaction_timeout,
        Duration::from_secs(1)
    );
    let zero = on_mysql(
        r#","max_database_connection_lifetime":"0s","db_connection_timeout":"0s","db_read_timeout":"0""#,
    );
    assert_eq!(zero.limits, default);
    let statement_timeout = |key: &str| on_mysql(key).limits.statement_timeout;
    assert_eq!(
        statement_timeout(r#","db_read_timeout":"5s""#),
        default.statement_timeout,
        "writes have the default"
    );
    assert_eq!(
        statement_timeout(r#","db_write_timeout":"20m""#),
        Duration::from_secs(20 * 60)
    );
}

/// The connections in the pool and for the lease, and the number that the limit was raised to.
fn shares(driver: &str, keys: &str) -> (u32, u32, Option<u32>) {
    let text = if driver == "mysql" {
        "u:p@tcp(db:3306)/d"
    } else {
        "postgres://u:p@db/d"
    };
    let json = format!(
        r#"{{"database_driver":"{driver}","database_connection_string":"{text}","modules_dir":"m"{keys}}}"#
    );
    let config = read(&json).unwrap();
    let Address::Server(server) = config.database else {
        panic!("{driver} is a server")
    };
    let ConnectionLimits {
        max_connections,
        lease_connections,
        ..
    } = server.limits;
    (
        max_connections,
        lease_connections,
        config.raised_connections.map(|raised| raised.used),
    )
}

#[test]
fn limit_of_connections_includes_the_lease_and_is_raised_to_the_fewest_possible() {
    let limit = |count| format!(r#","max_open_database_connections":{count}"#);
    for driver in ["postgres", "mysql"] {
        assert_eq!(shares(driver, &limit(1)), (2, 1, Some(3)));
        assert_eq!(shares(driver, &limit(3)), (2, 1, None));
        assert_eq!(shares(driver, &limit(12)), (9, 3, None));
        assert_eq!(shares(driver, ""), (97, 3, None));
        assert_eq!(
            shares(driver, &format!("{},{LOCKET}", limit(1))),
            (2, 0, Some(2))
        );
        assert_eq!(
            shares(driver, &format!("{},{LOCKET}", limit(20))),
            (20, 0, None)
        );
    }
}
