//! Validation of health and readiness checks.

use bbs_proto::models::{Check, CheckDefinition};

use super::{Findings, Validate};

impl Validate for CheckDefinition {
    fn validate(&self, findings: &mut Findings) {
        for check in self.checks.iter().chain(&self.readiness_checks) {
            check.validate(findings);
        }
    }
}

impl Validate for Check {
    fn validate(&self, findings: &mut Findings) {
        let port = match (&self.tcp_check, &self.http_check) {
            (Some(_), Some(_)) => return findings.invalid("check"),
            (Some(tcp), None) => tcp.port,
            (None, Some(http)) => http.port,
            (None, None) => 0,
        };
        findings.invalid_if(!(1..=65_535).contains(&port), "port");
    }
}

#[cfg(test)]
mod tests {
    use bbs_proto::models::{HttpCheck, TcpCheck};

    use super::super::check;
    use super::*;

    fn tcp(port: u32) -> Check {
        Check {
            tcp_check: Some(TcpCheck {
                port,
                ..Default::default()
            }),
            http_check: None,
        }
    }

    fn http(port: u32) -> Check {
        Check {
            tcp_check: None,
            http_check: Some(HttpCheck {
                port,
                ..Default::default()
            }),
        }
    }

    #[test]
    fn check_needs_one_kind_and_a_port() {
        for kind in [tcp, http] {
            for port in [1, 8080, 65_535] {
                assert_eq!(check(&kind(port)), Ok(()));
            }
            for port in [0, 65_536, u32::MAX] {
                assert_eq!(
                    check(&kind(port)).unwrap_err(),
                    "Invalid field: port",
                    "{port}"
                );
            }
        }
        assert_eq!(check(&Check::default()).unwrap_err(), "Invalid field: port");
        let both = Check {
            tcp_check: tcp(1).tcp_check,
            http_check: http(1).http_check,
        };
        assert_eq!(check(&both).unwrap_err(), "Invalid field: check");
    }

    #[test]
    fn checks_are_validated_before_readiness_checks() {
        let both = || Check {
            tcp_check: tcp(1).tcp_check,
            http_check: http(0).http_check,
        };
        let found = |checks: Vec<Check>, readiness_checks: Vec<Check>| {
            check(&CheckDefinition {
                checks,
                readiness_checks,
                ..Default::default()
            })
            .err()
            .unwrap_or_default()
        };
        assert_eq!(found(vec![], vec![]), "");
        assert_eq!(found(vec![tcp(1)], vec![http(1)]), "");
        assert_eq!(
            found(vec![tcp(0), http(1), both()], vec![]),
            "Invalid field: port, Invalid field: check"
        );
        assert_eq!(
            found(vec![both()], vec![tcp(0)]),
            "Invalid field: check, Invalid field: port"
        );
        assert_eq!(
            found(vec![tcp(0)], vec![both()]),
            "Invalid field: port, Invalid field: check"
        );
    }
}
