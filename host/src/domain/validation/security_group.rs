//! Validation of egress rules: the fields that each protocol requires. Addresses are parsed by
//! `address`.

use bbs_proto::models::{PortRange, SecurityGroupRule};

use super::address::destination;
use super::{Findings, Validate};

impl Validate for SecurityGroupRule {
    fn validate(&self, findings: &mut Findings) {
        match &self.protocol[..] {
            b"tcp" | b"udp" => {
                ports(self, findings);
                findings.invalid_if(self.icmp_info.is_some(), "icmp_info");
            }
            b"icmp" => {
                no_ports(self, findings);
                findings.invalid_if(self.icmp_info.is_none(), "icmp_info");
            }
            b"icmpv6" => {
                no_ports(self, findings);
                findings.invalid_if(self.icmp_info.is_none(), "icmpv6_info");
            }
            b"all" => {
                no_ports(self, findings);
                findings.invalid_if(self.icmp_info.is_some(), "icmp_info");
            }
            _ => findings.invalid("protocol"),
        }
        destinations(&self.destinations, findings);
    }
}

fn no_ports(rule: &SecurityGroupRule, findings: &mut Findings) {
    findings.invalid_if(rule.port_range.is_some(), "port_range");
    findings.invalid_if(!rule.ports.is_empty(), "ports");
}

fn ports(rule: &SecurityGroupRule, findings: &mut Findings) {
    match (&rule.port_range, &rule.ports[..]) {
        (None, []) => findings.add("Missing required field: ports or port_range"),
        (Some(_), [_, ..]) => findings.add("Invalid: ports and port_range provided"),
        (Some(PortRange { start, end }), []) => {
            findings.at_least(1, "port_range", *start);
            findings.at_least(1, "port_range", *end);
            findings.invalid_if(start > end, "port_range");
        }
        (None, ports) => ports
            .iter()
            .for_each(|port| findings.at_least(1, "ports", *port)),
    }
}

/// All findings about destinations make one finding. Each entry may be a comma-separated list.
fn destinations(destinations: &[Vec<u8>], findings: &mut Findings) {
    let mut inner = Findings::default();
    if destinations.is_empty() {
        inner.add("Must have at least 1 destination");
    }
    for entry in destinations
        .iter()
        .flat_map(|list| list.split(|byte| *byte == b','))
    {
        destination(entry, &mut inner);
    }
    findings.invalid_if(!inner.is_empty(), &format!("destinations [ {inner} ]"));
}

#[cfg(test)]
mod tests {
    use bbs_proto::models::IcmpInfo;

    use super::super::check;
    use super::*;

    fn rule(
        protocol: &str,
        ports: &[u32],
        range: Option<(u32, u32)>,
        icmp: bool,
    ) -> SecurityGroupRule {
        SecurityGroupRule {
            protocol: protocol.into(),
            destinations: vec![b"0.0.0.0/0".to_vec()],
            ports: ports.to_vec(),
            port_range: range.map(|(start, end)| PortRange { start, end }),
            icmp_info: icmp.then(IcmpInfo::default),
            ..Default::default()
        }
    }

    fn found(rule: &SecurityGroupRule) -> String {
        check(rule).err().unwrap_or_default()
    }

    #[test]
    fn tcp_and_udp_need_ports_or_a_port_range() {
        for protocol in ["tcp", "udp"] {
            for (ports, range, expected) in [
                (&[80][..], None, ""),
                (&[80, 443, 65_536], None, ""),
                (&[], Some((1, 1)), ""),
                (&[], Some((1, 65_535)), ""),
                (&[], None, "Missing required field: ports or port_range"),
                (
                    &[80],
                    Some((1, 2)),
                    "Invalid: ports and port_range provided",
                ),
                (&[0], Some((0, 0)), "Invalid: ports and port_range provided"),
                (&[0], None, "Invalid field: ports"),
                (
                    &[0, 80, 0],
                    None,
                    "Invalid field: ports, Invalid field: ports",
                ),
                (&[], Some((0, 1)), "Invalid field: port_range"),
                (&[], Some((2, 1)), "Invalid field: port_range"),
                (
                    &[],
                    Some((0, 0)),
                    "Invalid field: port_range, Invalid field: port_range",
                ),
                (
                    &[],
                    Some((1, 0)),
                    "Invalid field: port_range, Invalid field: port_range",
                ),
            ] {
                assert_eq!(
                    found(&rule(protocol, ports, range, false)),
                    expected,
                    "{protocol} {ports:?} {range:?}"
                );
            }
            assert_eq!(
                found(&rule(protocol, &[80], None, true)),
                "Invalid field: icmp_info"
            );
            assert_eq!(
                found(&rule(protocol, &[0], None, true)),
                "Invalid field: ports, Invalid field: icmp_info"
            );
        }
    }

    #[test]
    fn icmp_needs_its_info_and_no_ports() {
        for (protocol, info) in [("icmp", "icmp_info"), ("icmpv6", "icmpv6_info")] {
            assert_eq!(found(&rule(protocol, &[], None, true)), "");
            assert_eq!(
                found(&rule(protocol, &[], None, false)),
                format!("Invalid field: {info}")
            );
            assert_eq!(
                found(&rule(protocol, &[1], None, true)),
                "Invalid field: ports"
            );
            assert_eq!(
                found(&rule(protocol, &[], Some((1, 2)), true)),
                "Invalid field: port_range"
            );
            assert_eq!(
                found(&rule(protocol, &[1], Some((1, 2)), false)),
                format!("Invalid field: port_range, Invalid field: ports, Invalid field: {info}")
            );
        }
    }

    #[test]
    fn protocol_all_allows_neither_ports_nor_icmp_info() {
        assert_eq!(found(&rule("all", &[], None, false)), "");
        assert_eq!(
            found(&rule("all", &[], None, true)),
            "Invalid field: icmp_info"
        );
        assert_eq!(
            found(&rule("all", &[1], None, false)),
            "Invalid field: ports"
        );
        assert_eq!(
            found(&rule("all", &[], Some((1, 2)), false)),
            "Invalid field: port_range"
        );
    }

    #[test]
    fn any_other_protocol_is_rejected() {
        for unknown in ["", "TCP", "tcp ", "sctp", "icmp6"] {
            assert_eq!(
                found(&rule(unknown, &[0], Some((0, 0)), true)),
                "Invalid field: protocol",
                "{unknown:?}"
            );
        }
        let broken = SecurityGroupRule {
            protocol: vec![0xff],
            ..rule("", &[], None, false)
        };
        assert_eq!(found(&broken), "Invalid field: protocol");
    }

    #[test]
    fn destinations_may_be_lists_and_make_one_finding() {
        let to = |lists: &[&str]| {
            let destinations = lists.iter().map(|list| list.as_bytes().to_vec()).collect();
            found(&SecurityGroupRule {
                destinations,
                ..rule("all", &[], None, false)
            })
        };
        assert_eq!(to(&["1.1.1.1", "1.1.1.1-1.1.1.9,::/0", "2.2.2.0/24"]), "");
        assert_eq!(
            to(&[]),
            "Invalid field: destinations [ Must have at least 1 destination ]"
        );
        assert_eq!(to(&[""]), "Invalid field: destinations [ Invalid IP ]");
        assert_eq!(
            to(&["1.1.1.1,"]),
            "Invalid field: destinations [ Invalid IP ]"
        );
        assert_eq!(
            to(&["1.1.1.1, 1.1.1.2"]),
            "Invalid field: destinations [ Invalid IP ]"
        );
        assert_eq!(
            to(&["x,1.1.1.1/33", "1.1.1.1", "2.2.2.2-1.1.1.1"]),
            "Invalid field: destinations [ Invalid IP, invalid CIDR address: 1.1.1.1/33, \
             Invalid IP, Invalid IP, Invalid IP, Invalid IP ]"
        );
    }

    #[test]
    fn destinations_are_validated_last() {
        let nowhere = SecurityGroupRule {
            destinations: vec![],
            ..rule("udp", &[], Some((9, 1)), false)
        };
        assert_eq!(
            found(&nowhere),
            "Invalid field: port_range, Invalid field: destinations [ Must have at least 1 destination ]"
        );
    }
}
