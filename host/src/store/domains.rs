//! The table `domains`: which domains are fresh, and until when.

use sea_query::{Cond, Expr, ExprTrait, OnConflict, Order, Query};

use super::reader::Reader;
use super::record::Record;
use super::{StoreError, Writer};
use crate::model::Text;

const DOMAINS: &str = "domains";

impl Reader {
    /// The domains that expire after this moment.
    pub async fn domains(&mut self, fresh_after_ns: i64) -> Result<Vec<Text>, StoreError> {
        let select = Query::select()
            .column("domain")
            .from(DOMAINS)
            .cond_where(Cond::all().add(Expr::col("expire_time").gt(fresh_after_ns)))
            .order_by("domain", Order::Asc)
            .to_owned();
        let rows = self.fetch(select, "list domains").await?;
        let store = &self.store;
        store.readable(
            rows.iter().map(|row| Record::read(row, store, DOMAINS, "domain", |record| record.text("domain"))),
        )
    }
}

impl Writer {
    pub async fn upsert_domain(&mut self, domain: &[u8], expire_time_ns: i64) -> Result<(), StoreError> {
        let name = self.store.plain(DOMAINS, "domain", domain)?;
        let (mut columns, mut values) = (vec!["domain", "expire_time"], vec![name.into(), expire_time_ns.into()]);
        self.stamp(DOMAINS, &mut columns, &mut values);
        let insert = Query::insert()
            .into_table(DOMAINS)
            .columns(columns)
            .values_panic(values)
            .on_conflict(OnConflict::column("domain").update_column("expire_time").to_owned())
            .to_owned();
        self.insert(&insert, "upsert a domain").await.map(|_| ())
    }
}
