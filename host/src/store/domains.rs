//! The table `domains`: which domains are fresh, and until when.

use super::column_values::number;
use super::filter::Filter;
use super::reader::{Range, Reader};
use super::writer::Conflict;
use super::{StoreError, Table, Writer};
use crate::model::Text;

const TABLE: Table = Table { name: "domains", key: "domain", primary_key: &["domain"], heavy: &[] };

impl Reader {
    /// The domains that expire after this moment.
    pub async fn domains(&mut self, fresh_after_ns: i64) -> Result<Vec<Text>, StoreError> {
        let fresh = Filter::everything().above("expire_time", fresh_after_ns);
        let columns = ["domain", "expire_time"];
        let all = Range::default();
        Ok(self.list(TABLE, &columns, &fresh, &all, |record| record.text("domain")).await?.records)
    }
}

impl Writer {
    pub async fn upsert_domain(&mut self, domain: &[u8], expire_time_ns: i64) -> Result<(), StoreError> {
        let values = vec![("domain", self.plain(TABLE, "domain", domain)?), ("expire_time", number(expire_time_ns))];
        self.insert(TABLE, domain, vec![values], Conflict::Takes("expire_time")).await
    }

    /// Deletes it unless somebody has spoken for it again.
    pub async fn delete_expired_domain(&mut self, domain: &[u8], now_ns: i64) -> Result<(), StoreError> {
        self.delete(TABLE, domain, Filter::everything().at_most("expire_time", now_ns)).await.map(drop)
    }
}
