//! The destinations of an egress rule: addresses, networks, ranges. Parses them strictly; does not
//! resolve names.

use std::net::{IpAddr, Ipv6Addr};

use super::Findings;

const NOT_AN_ADDRESS: &str = "Invalid IP";

/// One destination. Its first `-` or `/` decides between range and network.
pub(super) fn destination(text: &[u8], findings: &mut Findings) {
    match text.iter().position(|byte| matches!(byte, b'-' | b'/')) {
        Some(at) if text[at] == b'/' => network(text, at, findings),
        Some(at) => range(&text[..at], &text[at + 1..], findings),
        None if address(text).is_none() => findings.add(NOT_AN_ADDRESS),
        None => {}
    }
}

/// Strict: no leading zeros, no shorthand for IPv4, no zone, no blanks.
fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn network(text: &[u8], slash: usize, findings: &mut Findings) {
    let longest = match address(&text[..slash]) {
        Some(IpAddr::V4(_)) => Some(32),
        Some(IpAddr::V6(_)) => Some(128),
        None => None,
    };
    let length = prefix_length(&text[slash + 1..]);
    if longest
        .zip(length)
        .is_none_or(|(longest, length)| length > longest)
    {
        findings.add(format!(
            "invalid CIDR address: {}",
            String::from_utf8_lossy(text)
        ));
    }
}

/// Digits only; leading zeros are allowed here.
fn prefix_length(digits: &[u8]) -> Option<u32> {
    let has_digits_only = digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok()?;
    digits.parse().ok().filter(|_| has_digits_only)
}

/// Compares the ends byte by byte from the front, until the first end is smaller; each byte before
/// that in which it is greater is a finding of its own, as in Diego.
fn range(first: &[u8], last: &[u8], findings: &mut Findings) {
    let (Some(first), Some(last)) = (address(first), address(last)) else {
        return findings.add(NOT_AN_ADDRESS);
    };
    for (from, to) in wide(first).into_iter().zip(wide(last)) {
        if from < to {
            break;
        }
        if from > to {
            findings.add(NOT_AN_ADDRESS);
        }
    }
}

/// Both families as sixteen bytes, so that they can be compared.
fn wide(address: IpAddr) -> [u8; 16] {
    let address: Ipv6Addr = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.octets()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> String {
        let mut findings = Findings::default();
        destination(text, &mut findings);
        findings.to_string()
    }

    #[test]
    fn addresses() {
        for good in [
            "0.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "2001:db8::1",
            "1:2:3:4:5:6:7::",
            "::ffff:1.2.3.4",
            "A::f",
        ] {
            assert_eq!(found(good.as_bytes()), "", "{good}");
        }
        let bad = [
            "",
            " ",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "01.2.3.4",
            "1.2.3.04",
            "1..2.3",
            ".1.2.3",
            "1.2.3.",
            " 1.2.3.4",
            "1.2.3.4 ",
            "1.2.3.4:80",
            "x",
            "example.com",
            "1",
            "0x1.2.3.4",
            ":",
            ":::",
            "1::2::3",
            ":1::2",
            "1::2:",
            "12345::",
            "fe80::1%eth0",
            "1:2:3:4:5:6:7:8:9",
            "1:2:3:4:5:6:7::8",
            "1.2.3.4::",
            "[::1]",
            "+1.2.3.4",
        ];
        for bad in bad {
            assert_eq!(found(bad.as_bytes()), "Invalid IP", "{bad}");
        }
        assert_eq!(found(b"1.2.3.4\xff"), "Invalid IP");
    }

    #[test]
    fn networks() {
        let good = [
            "0.0.0.0/0",
            "1.2.3.4/32",
            "1.2.3.4/024",
            "10.0.0.0/8",
            "::/0",
            "2001:db8::/128",
            "::ffff:1.2.3.4/128",
            "1.2.3.4/000000000000000000000000000000000008",
        ];
        for good in good {
            assert_eq!(found(good.as_bytes()), "", "{good}");
        }
        let bad = [
            "1.2.3.4/",
            "1.2.3.4/33",
            "::/129",
            "/8",
            "1.2.3/8",
            "1.2.3.4/-1",
            "1.2.3.4/8-9",
            "1.2.3.4/8/8",
            "1.2.3.4/+8",
            "1.2.3.4/ 8",
            "1.2.3.4/4294967296",
            "1.2.3.4/99999999999999999999",
            "fe80::1%eth0/64",
            "01.2.3.4/8",
            "/",
        ];
        for bad in bad {
            assert_eq!(
                found(bad.as_bytes()),
                format!("invalid CIDR address: {bad}")
            );
        }
        assert_eq!(found(b"\xff/8"), "invalid CIDR address: \u{fffd}/8");
    }

    #[test]
    fn ranges() {
        let good = [
            "1.1.1.1-1.1.1.1",
            "1.1.1.1-1.1.1.9",
            "10.0.1.200-10.0.2.10",
            "1.2.3.4-2.0.0.0",
            "::-::1",
            "::1-1.2.3.4",
            "::ffff:1.1.1.1-1.1.1.2",
        ];
        for good in good {
            assert_eq!(found(good.as_bytes()), "", "{good}");
        }
        for bad in [
            "-",
            "1.1.1.1-",
            "-1.1.1.1",
            "1.1.1.1-x",
            "x-1.1.1.1",
            "1.1.1.1-1.1.1.2-1.1.1.3",
            "1.1.1.1-1.1.1.1/32",
            "1.1.1.1--1.1.1.2",
        ] {
            assert_eq!(found(bad.as_bytes()), "Invalid IP", "{bad}");
        }
    }

    #[test]
    fn each_byte_in_which_the_range_runs_backwards_is_a_finding() {
        assert_eq!(found(b"1.2.3.4-1.2.3.3"), "Invalid IP");
        assert_eq!(found(b"1.2.4.4-1.2.3.3"), "Invalid IP, Invalid IP");
        assert_eq!(
            found(b"1.2.4.4-1.2.3.5"),
            "Invalid IP",
            "the last byte runs forwards and ends the comparison"
        );
        assert_eq!(found(b"2.2.3.4-1.3.0.0"), "Invalid IP");
        assert_eq!(
            found(b"1.2.3.4-::1"),
            ["Invalid IP"; 6].join(", "),
            "a mapped IPv4 address begins with ten zeros, ff, ff"
        );
    }
}
