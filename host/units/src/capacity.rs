//! The text that a column can hold, so that a longer value is refused by name before the database
//! refuses it.

use bbs_lens::layout::schema::{ColumnType, characters};

use bbs_database::Dialect;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    Characters(u32),
    Bytes(u32),
}

impl Capacity {
    /// None where no request reaches the bound.
    pub fn of(kind: ColumnType, dialect: Dialect) -> Option<Self> {
        match kind {
            ColumnType::Varchar(most) => Some(Self::Characters(most)),
            ColumnType::Text if dialect == Dialect::Mysql => Some(Self::Bytes(0xffff)),
            ColumnType::MediumText if dialect == Dialect::Mysql => Some(Self::Bytes(0x00ff_ffff)),
            ColumnType::Boolean
            | ColumnType::Integer
            | ColumnType::BigInteger
            | ColumnType::Text
            | ColumnType::MediumText
            | ColumnType::LongText => None,
        }
    }

    /// The bound, of characters or bytes. A text with at most as many bytes fits.
    pub fn most(self) -> usize {
        let (Self::Characters(most) | Self::Bytes(most)) = self;
        most as usize
    }

    /// Text that is not UTF-8 counts by its bytes.
    pub fn holds(self, text: &[u8]) -> bool {
        match self {
            Self::Characters(most) => characters(text) <= most as usize,
            Self::Bytes(most) => text.len() <= most as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_capacity_is_that_of_its_database() {
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
            let varchar = Capacity::of(ColumnType::Varchar(2), dialect).unwrap();
            assert!(
                varchar.holds("öä".as_bytes()) && !varchar.holds(b"abc"),
                "{dialect}"
            );
            assert!(
                varchar.holds(b"\xff\xff") && !varchar.holds(b"\xff\xff\xff"),
                "{dialect}"
            );
            assert_eq!(Capacity::of(ColumnType::LongText, dialect), None);
        }
        let text = Capacity::of(ColumnType::Text, Dialect::Mysql).unwrap();
        assert!(
            text.holds("a".repeat(65_535).as_bytes()) && !text.holds("ä".repeat(32_768).as_bytes())
        );
        assert_eq!(
            Capacity::of(ColumnType::MediumText, Dialect::Mysql),
            Some(Capacity::Bytes(0x00ff_ffff))
        );
        for kind in [ColumnType::Text, ColumnType::MediumText] {
            assert_eq!(
                [Dialect::Sqlite, Dialect::Postgres].map(|dialect| Capacity::of(kind, dialect)),
                [None, None]
            );
        }
    }
}
