//! Domains. While a domain is fresh, its desired LRPs are complete, so that surplus instances may
//! be removed.

use bbs_model::Text;
use bbs_work::causes::with_causes;
use bbs_work::lossy;

use super::retry::retry;
use super::{DomainError, Service};
use crate::store::Reader;

const SECOND_NS: i64 = 1_000_000_000;

/// The fresh domains. Expiry is compared to the nearest second, as in Diego.
pub async fn list(reader: &mut Reader) -> Result<Vec<Text>, DomainError> {
    let now_ns = reader.now_ns();
    Ok(reader.domains(nearest_second(now_ns)).await?)
}

/// Keeps a domain fresh for `ttl_s` seconds; zero means for ever.
pub async fn upsert(service: &Service, domain: &[u8], ttl_s: u32) -> Result<(), DomainError> {
    let store = service.store();
    let expire_time_ns = match ttl_s {
        0 => i64::MAX,
        ttl_s => store.now_ns().saturating_add(i64::from(ttl_s) * SECOND_NS),
    };
    retry(|| async move {
        let mut writer = store.writer().await?;
        writer.upsert_domain(domain, expire_time_ns).await?;
        Ok(writer.commit().await?)
    })
    .await
}

/// Deletes the expired domains and returns the others. One that cannot be deleted is logged, as in
/// Diego: it is expired all the same.
///
/// # Errors
/// The domains cannot be read.
pub async fn forget_expired(service: &Service) -> Result<Vec<Text>, DomainError> {
    let store = service.store();
    let mut reader = store.reader().await?;
    let now_ns = reader.now_ns();
    let all = reader.domains(i64::MIN).await?;
    let fresh = reader.domains(now_ns).await?;
    drop(reader);
    for domain in all.iter().filter(|domain| !fresh.contains(domain)) {
        let deleted = retry(|| async move {
            let mut writer = store.writer().await?;
            writer.delete_expired_domain(domain, now_ns).await?;
            Ok(writer.commit().await?)
        });
        if let Err(fault) = deleted.await {
            tracing::error!(name: "cannot-prune-domains", domain = %lossy(domain), reason = %with_causes(&fault), "an expired domain cannot be deleted; the next convergence deletes it");
        }
    }
    Ok(fresh)
}

fn nearest_second(now_ns: i64) -> i64 {
    now_ns.saturating_add(SECOND_NS / 2).div_euclid(SECOND_NS) * SECOND_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_second_rounds_up() {
        assert_eq!(nearest_second(7_499_999_999), 7_000_000_000);
        assert_eq!(nearest_second(7_500_000_000), 8_000_000_000);
    }
}
