//! Removal of a key: the check at a start, the counts of `status`, and the proof of `verify`.

use super::*;

on_each_database!(unknown_label_is_rejected_before_any_change);
async fn unknown_label_is_rejected_before_any_change(kind: Kind) {
    let case = RotationTest::new(kind, 1).await;
    case.label_is(Some("lost")).await;
    let before = case.messages().await;
    let context = case.context();
    let error = keys::check(&context.database, &context.keyring, &context.scope)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, KeysError::UnknownLabel { label } if label == "lost"),
        "{error}"
    );
    assert!(keys::begin(&context, &case.fence).await.is_err());
    assert!(keys::rotate(&context, &case.fence).await.is_err());
    assert_eq!(case.messages().await, before);
    assert_eq!(case.label().await.as_deref(), Some("lost"));
    let status = keys::status(&context.database, &context.keyring, &context.scope)
        .await
        .unwrap();
    assert_eq!(status.unknown, ["lost"]);
}

on_each_database!(key_removed_too_early_is_rejected_by_name);
async fn key_removed_too_early_is_rejected_by_name(kind: Kind) {
    let case = RotationTest::new(kind, 3).await;
    assert!(keys::begin(&case.context(), &case.fence).await.unwrap());
    let only_new = case.context_with(Keyring::new([(NEW, "second")], NEW).unwrap());
    let check = async || keys::check(&only_new.database, &only_new.keyring, &only_new.scope).await;
    let error = check().await.unwrap_err();
    assert!(
        matches!(&error, KeysError::KeyRemoved { label, texts: 6, places } if label == OLD && places == "things"),
        "{error}"
    );
    assert!(error.to_string().contains("Put the key back"), "{error}");

    // No text is under the key any more, although `verify` has not run.
    execute(&case.database, "DELETE FROM things").await;
    check().await.unwrap();
}

on_each_database!(reversed_rotation_still_requires_both_keys);
async fn reversed_rotation_still_requires_both_keys(kind: Kind) {
    let case = RotationTest::new(kind, 1).await;
    assert!(keys::begin(&case.context(), &case.fence).await.unwrap());
    case.insert("meanwhile", 0, &seal(NEW, b"new"), None).await;
    assert!(
        keys::begin(&case.context_with(keys(OLD)), &case.fence)
            .await
            .unwrap()
    );
    let only_old = case.context_with(Keyring::new([(OLD, "first")], OLD).unwrap());
    let error = keys::check(&only_old.database, &only_old.keyring, &only_old.scope)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, KeysError::KeyRemoved { label, texts: 1, .. } if label == NEW),
        "{error}"
    );
}

on_each_database!(status_counts_texts_by_label);
async fn status_counts_texts_by_label(kind: Kind) {
    let case = RotationTest::new(kind, 5).await;
    let lost = seal_under_lost_key();
    case.insert("lost", 0, &lost, Some(&seal(NEW, b"{}"))).await;
    case.insert("broken", 0, b"02/w==", Some(b"")).await;

    let context = case.context();
    let status = keys::status(&context.database, &context.keyring, &context.scope)
        .await
        .unwrap();
    assert_eq!(
        (status.label.as_deref(), status.active.as_str()),
        (Some(OLD), NEW)
    );
    assert_eq!(status.unknown, ["lost"]);
    assert_eq!(status.rotation, None);
    let counts = |place: &keys::LabelCounts| {
        (
            place.under(OLD),
            place.under(NEW),
            place.under("lost"),
            place.nameless,
        )
    };
    let places: Vec<_> = status
        .places
        .iter()
        .map(|place| (place.place.as_str(), counts(place)))
        .collect();
    assert_eq!(places, [("things", (10, 1, 1, 1))]);

    assert!(keys::begin(&context, &case.fence).await.unwrap());
    let status = keys::status(&context.database, &context.keyring, &context.scope)
        .await
        .unwrap();
    let rotation = status.rotation.expect("a rotation is in progress");
    assert_eq!(
        (rotation.to.as_str(), rotation.rewritten, status.label),
        (NEW, 0, None)
    );
    assert_eq!(rotation.labels, [OLD.to_owned(), NEW.to_owned()].into());

    // As Diego's BBS does at the end of its own rotation.
    case.label_is(Some(NEW)).await;
    let status = keys::status(&context.database, &context.keyring, &context.scope)
        .await
        .unwrap();
    assert_eq!(status.rotation, None);
}

on_each_database!(verify_requires_a_clean_scan_and_the_label);
async fn verify_requires_a_clean_scan_and_the_label(kind: Kind) {
    let case = RotationTest::new(kind, 5).await;
    let context = case.context();
    let verify = async |label: &str| {
        keys::verify(&context.database, &context.keyring, &context.scope, label)
            .await
            .unwrap()
            .obstacles
    };
    let found = verify(OLD).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].starts_with("things: 10 sealed texts"), "{found:?}");

    assert_eq!(case.rotate().await.rewritten, 10);
    assert!(verify(OLD).await.is_empty());
    assert!(verify("never used").await.is_empty());
    assert_eq!(verify(NEW).await.len(), 3, "the active key is never unused");

    case.insert("late", 0, &seal(OLD, b"x"), None).await;
    assert_eq!(
        verify(OLD).await,
        [
            "things: 1 sealed texts are under \"Key-2024\"; `bbs keys rotate` re-seals them while no host serves"
        ]
    );
    execute(
        &case.database,
        "UPDATE things SET message = '02/w==' WHERE guid = 'late'",
    )
    .await;
    assert!(verify(OLD).await[0].contains("have no key label"));
    execute(&case.database, "DELETE FROM things WHERE guid = 'late'").await;
    case.label_is(None).await;
    assert!(verify(OLD).await[0].contains("a rotation is incomplete"));
}
