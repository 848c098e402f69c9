//! The SQL of filters in each dialect, and their evaluation in memory.

use std::collections::BTreeMap;

use sea_query::{MysqlQueryBuilder, PostgresQueryBuilder, Query, SqliteQueryBuilder};

use super::*;
use crate::store::record::RecordReadError;

struct TestRow(
    BTreeMap<&'static str, &'static [u8]>,
    BTreeMap<&'static str, i64>,
);

impl Columns for TestRow {
    fn bytes(&self, column: &'static str) -> Result<Option<&[u8]>, RecordReadError> {
        Ok(self.0.get(column).copied())
    }

    fn integer(&self, column: &'static str) -> Result<Option<i64>, RecordReadError> {
        Ok(self.1.get(column).copied())
    }
}

fn row() -> TestRow {
    TestRow(
        [("guid", &b"app_1-v1"[..]), ("other", b"\xff")].into(),
        [("index", 3)].into(),
    )
}

fn sql_of(filter: &Filter, dialect: Dialect) -> String {
    let mut select = Query::select();
    select
        .column("a")
        .from("t")
        .cond_where(filter.to_sql(dialect));
    match dialect {
        Dialect::Sqlite => select.to_string(SqliteQueryBuilder),
        Dialect::Postgres => select.to_string(PostgresQueryBuilder),
        Dialect::Mysql => select.to_string(MysqlQueryBuilder),
    }
}

#[test]
fn like_pattern_becomes_glob_with_glob_characters_quoted() {
    assert_eq!(glob("a%b_c"), "a*b?c*");
    assert_eq!(glob("*?[x]"), "[*][?][[]x]*");
}

#[test]
fn patterns_match_in_memory_as_in_the_databases() {
    for (text, pattern, fits) in [
        ("app1", "", true),
        ("app1", "app", true),
        ("app1", "App", false),
        ("app1", "app12", false),
        ("app1-v1", "a%v1", true),
        ("a-v2-v1", "a%v1", true),
        ("a-v2", "a%v1", false),
        ("ä1", "_1", true),
        ("ä1", "__1", false),
        ("", "_", false),
        ("", "%", true),
        ("xaab", "%ab", true),
        ("xäaab", "%_ab", true),
        ("a\\%b", "a\\%", true),
        ("a*b", "a*", true),
        ("ab", "a*", false),
        ("aaa", "%a%a%a%a", false),
    ] {
        assert_eq!(
            begins_like(text.as_bytes(), pattern.as_bytes()),
            fits,
            "{text:?} like {pattern:?}"
        );
    }
}

#[test]
fn filter_holds_if_each_condition_holds() {
    let texts = |texts: &[&[u8]]| texts.iter().map(|text| text.to_vec()).collect::<Vec<_>>();
    let holds = |filter: Filter| filter.holds(&row());
    let all = Filter::everything;
    assert!(holds(all()));
    assert!(holds(
        all()
            .equals("guid", *b"app_1-v1")
            .is("index", 3)
            .at_least("index", 3)
            .above("index", 2)
    ));
    assert!(holds(all().equals("other", *b"\xff")));
    assert!(!holds(all().equals("guid", *b"app_1-v1").is("index", 4)));
    assert!(!holds(all().at_least("index", 4)));
    assert!(!holds(all().above("index", 3)));
    assert!(!holds(all().equals("absent", *b"")), "NULL equals nothing");
    assert!(!holds(all().is("absent", 0)));
    assert!(holds(all().one_of("guid", &texts(&[b"x", b"app_1-v1"]))));
    assert!(!holds(all().one_of("guid", &texts(&[b"x"]))));
    assert!(
        holds(
            all()
                .one_of("guid", &[])
                .like_one_of("guid", &[])
                .unwrap()
                .equals_if_any("guid", b"")
        ),
        "empty is any"
    );
}

#[test]
fn text_that_begins_with_a_listed_text_or_pattern_is_found() {
    let holds = |list: &[&[u8]]| {
        let list: Vec<_> = list.iter().map(|text| text.to_vec()).collect();
        let filter = Filter::everything().like_one_of("guid", &list).unwrap();
        filter.holds(&row())
    };
    let matching: [&[&[u8]]; 6] = [
        &[b"x", b"app"],
        &[b"app1", b"app", b"apo", b"app", b"appa"],
        &[b"", b"app", b"x"],
        &[b"ap", b"app0", b"app2"],
        &[b"x", b"a_p"],
        &[b"app0", b"%v1", b"x"],
    ];
    for list in matching {
        assert!(holds(list), "{list:?}");
    }
    let others: [&[&[u8]]; 3] = [
        &[b"App", b"pp"],
        &[b"app0", b"app2", b"appa", b"app_1-v10"],
        &[b"\xff", b"%\xff"],
    ];
    for list in others {
        assert!(!holds(list), "{list:?}");
    }
}

#[test]
fn text_is_found_in_a_list_of_any_order() {
    let texts: [&'static [u8]; 6] = [b"b", b"", b"ab", b"\xff", b"a", b"aa"];
    for count in 1..=texts.len() {
        let twice = texts[..count].iter().chain(&texts[..count]);
        let list: Vec<_> = twice.map(|text| text.to_vec()).collect();
        let filter = Filter::everything().one_of("guid", &list);
        for text in texts {
            let row = TestRow([("guid", text)].into(), BTreeMap::new());
            let is_listed = list.iter().any(|listed| listed == text);
            assert_eq!(filter.holds(&row), is_listed, "{text:?} in {list:?}");
        }
        let Some((_, Condition::OneOf(sorted))) = filter.conditions().next() else {
            panic!("the filter has one condition");
        };
        assert_eq!(sorted.len(), count);
        assert!(sorted.is_sorted(), "each row is found by a binary search");
    }
}

#[test]
fn text_that_the_database_cannot_store_matches_no_row() {
    let nul = Filter::everything().equals("guid", *b"a\0");
    assert!(sql_of(&nul, Dialect::Postgres).ends_with("WHERE 1 = 0"));
    assert!(!sql_of(&nul, Dialect::Mysql).contains("1 = 0"));
    let bytes = Filter::everything().equals("guid", *b"\xff");
    for dialect in [Dialect::Postgres, Dialect::Mysql] {
        assert!(
            sql_of(&bytes, dialect).ends_with("WHERE 1 = 0"),
            "{dialect}"
        );
        let among = Filter::everything().one_of("guid", &[b"\xff".to_vec()]);
        assert!(
            sql_of(&among, dialect).ends_with("WHERE 1 = 0"),
            "{dialect}"
        );
    }
    assert!(sql_of(&bytes, Dialect::Sqlite).contains("CAST"));
    let mixed =
        Filter::everything().one_of("guid", &[b"\xff".to_vec(), b"a".to_vec(), b"b\0".to_vec()]);
    assert_eq!(
        sql_of(&mixed, Dialect::Postgres),
        r#"SELECT "a" FROM "t" WHERE "guid" = ANY(ARRAY ['a'])"#
    );
}

#[test]
fn list_too_long_for_mysql_is_evaluated_in_memory() {
    let many = distinct_texts(MOST_IN_LIST + 1);
    for filter in [
        Filter::everything().one_of("guid", &many),
        Filter::everything().like_one_of("guid", &many).unwrap(),
    ] {
        let filter = filter.is("index", 1);
        assert!(!filter.is_complete_in_sql(Dialect::Mysql));
        assert_eq!(
            sql_of(&filter, Dialect::Mysql),
            "SELECT `a` FROM `t` WHERE `index` = 1"
        );
        assert!(
            filter.is_complete_in_sql(Dialect::Postgres)
                && filter.is_complete_in_sql(Dialect::Sqlite)
        );
    }
}

/// Texts of which none begins with another.
fn distinct_texts(count: usize) -> Vec<Vec<u8>> {
    let texts = (0..count).map(|number| format!("{number:06}").into_bytes());
    texts.collect()
}

#[test]
fn database_evaluates_every_list_with_wildcards() {
    let mut list = distinct_texts(MOST_IN_LIST - 1);
    list.push(b"%v1".to_vec());
    let filter = Filter::everything().like_one_of("guid", &list).unwrap();
    assert!(filter.is_complete_in_sql(Dialect::Mysql));
    list.push(b"one more".to_vec());
    assert!(matches!(
        Filter::everything().like_one_of("guid", &list),
        Err(StoreError::TooManyPatterns { most: MOST_IN_LIST })
    ));
}

#[test]
fn database_compares_no_text_that_begins_with_another_of_the_list() {
    let list = ["ab", "a", "b", "ab"].map(|text| text.as_bytes().to_vec());
    let filter = Filter::everything().like_one_of("guid", &list).unwrap();
    assert_eq!(
        sql_of(&filter, Dialect::Postgres),
        r#"SELECT "a" FROM "t" WHERE "guid" LIKE ANY(ARRAY ['a%','b%'])"#
    );
}

#[test]
fn backslash_is_not_an_escape_character() {
    let filter = Filter::everything()
        .like_one_of("guid", &[br"a\_".to_vec()])
        .unwrap();
    assert!(
        sql_of(&filter, Dialect::Sqlite).contains(r"a\\?*"),
        "{}",
        sql_of(&filter, Dialect::Sqlite)
    );
    assert_eq!(prefix_pattern(r"a\_"), r"a\\_%");
}
