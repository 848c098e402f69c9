//! The table `domains`: the fresh domains and their expiry times.

use bbs_model::Text;

use super::column_values::{Conflict, number};
use super::filter::Filter;
use super::page::Range;
use super::record::Projection;
use super::{EntityTable, Reader, StoreError, Writer};

const TABLE: EntityTable = EntityTable {
    name: "domains",
    key: "domain",
    primary_key: &["domain"],
    heavy: &[],
    selective: &[],
};

const NAMES: Projection<Text> = TABLE
    .read(|record| record.text("domain"))
    .columns(&["domain", "expire_time"]);

impl Reader {
    /// The domains that expire after a time.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn domains(&mut self, fresh_after_ns: i64) -> Result<Vec<Text>, StoreError> {
        let fresh = Filter::everything().above("expire_time", fresh_after_ns);
        Ok(self.list(&NAMES, &fresh, &Range::default()).await?.records)
    }

    /// Whether a domain that expires after a time has this name, as the database compares names: a
    /// collation of MySQL may ignore case.
    pub async fn has_domain(
        &mut self,
        name: &[u8],
        fresh_after_ns: i64,
    ) -> Result<bool, StoreError> {
        let fresh = Filter::everything().above("expire_time", fresh_after_ns);
        Ok(!self.rows(&NAMES, name, fresh).await?.is_empty())
    }
}

impl Writer {
    /// Inserts a domain, or updates its expiry time.
    pub async fn upsert_domain(
        &mut self,
        domain: &[u8],
        expire_time_ns: i64,
    ) -> Result<(), StoreError> {
        let values = vec![
            self.plain(TABLE, "domain", domain)?,
            ("expire_time", number(expire_time_ns)),
        ];
        self.insert(
            TABLE,
            domain,
            vec![values],
            Conflict::Updates("expire_time"),
        )
        .await
    }

    /// Deletes a domain unless it has been refreshed in the meantime.
    pub async fn delete_expired_domain(
        &mut self,
        domain: &[u8],
        now_ns: i64,
    ) -> Result<(), StoreError> {
        self.delete(
            TABLE,
            domain,
            Filter::everything().at_most("expire_time", now_ns),
        )
        .await
        .map(drop)
    }
}
