//! Bodies that are too large, too slow, too many, or cut short.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt, stream};

use super::*;

const LARGEST: usize = 1 << 20;

fn chunks(count: usize, size: usize) -> Body {
    Body::from_stream(stream::iter(
        (0..count).map(move |_| Ok::<_, Infallible>(vec![7_u8; size])),
    ))
}

/// A body of `count` parts, and whether it was read to its end.
fn observed(count: usize, size: usize) -> (Body, Arc<AtomicBool>) {
    let ended = Arc::new(AtomicBool::new(false));
    let observer = Arc::clone(&ended);
    let mut left = count;
    let next = std::iter::from_fn(move || {
        observer.store(left == 0, Ordering::Relaxed);
        left = left.checked_sub(1)?;
        Some(Ok::<_, Infallible>(vec![7_u8; size]))
    });
    (Body::from_stream(stream::iter(next)), ended)
}

/// Sends these chunks and then nothing.
fn stalled(count: usize, size: usize) -> Body {
    let sent = stream::iter((0..count).map(move |_| Ok::<_, Infallible>(vec![7_u8; size])));
    Body::from_stream(sent.chain(stream::pending()))
}

#[tokio::test]
async fn body_is_read_from_one_chunk_and_from_many() {
    let memory = Memory::default();
    for (count, size) in [(0, 0), (1, 10), (3, 10), (64, 16 << 10), (1, LARGEST)] {
        let body = memory
            .read(chunks(count, size), LARGEST)
            .await
            .expect("it is within the limit");
        assert_eq!(body, vec![7; count * size]);
    }
    assert_eq!(memory.incomplete.available_permits(), INCOMPLETE_KIB);
}

#[tokio::test]
async fn body_is_counted_until_its_last_copy_is_dropped() {
    let memory = Memory::default();
    let body = memory.read(chunks(1, LARGEST), LARGEST).await;
    let copy = body.as_ref().expect("it is within the limit").clone();
    drop(body);
    let counted = (LARGEST - UNCOUNTED) >> 10;
    let free = memory.incomplete.available_permits();
    assert_eq!(free, INCOMPLETE_KIB - counted);
    drop(copy);
    assert_eq!(memory.incomplete.available_permits(), INCOMPLETE_KIB);
}

#[tokio::test]
async fn body_above_the_limit_is_rejected_however_it_is_sent() {
    let memory = Memory::default();
    for body in [
        chunks(1, LARGEST + 1),
        chunks(LARGEST + 1, 1),
        Body::from(vec![0; LARGEST + 1]),
    ] {
        let read = memory.read(body, LARGEST).await;
        assert!(
            matches!(read, Err(BodyError::TooLarge { largest: LARGEST })),
            "{read:?}"
        );
    }
    assert_eq!(memory.incomplete.available_permits(), INCOMPLETE_KIB);
}

#[tokio::test(start_paused = true)]
async fn body_that_stalls_or_takes_too_long_is_given_up() {
    let memory = Memory::default();
    let begin = Instant::now();
    assert!(matches!(
        memory.read(stalled(1, 10), LARGEST).await,
        Err(BodyError::Slow)
    ));
    assert_eq!(begin.elapsed(), LONGEST_STALL);
    let drip = stream::unfold((), |()| async {
        tokio::time::sleep(LONGEST_STALL / 2).await;
        Some((Ok::<_, Infallible>(vec![0_u8]), ()))
    });
    let begin = Instant::now();
    assert!(matches!(
        memory.read(Body::from_stream(drip), LARGEST).await,
        Err(BodyError::Slow)
    ));
    assert_eq!(begin.elapsed(), LONGEST_BODY);
}

#[tokio::test(start_paused = true)]
async fn incomplete_bodies_leave_no_memory_for_large_ones_but_for_small_ones() {
    let memory = Memory::default();
    let taken = Arc::clone(&memory.incomplete)
        .try_acquire_many_owned(INCOMPLETE_KIB as u32 - 100)
        .unwrap();
    let slow = memory.read(stalled(2, 50 << 10), LARGEST);
    let others = async {
        tokio::task::yield_now().await;
        let (body, ended) = observed(8, 16 << 10);
        let large = memory.read(body, LARGEST).await;
        assert!(matches!(large, Err(BodyError::Busy)), "{large:?}");
        assert!(
            ended.load(Ordering::Relaxed),
            "its connection can be used again"
        );
        let endless = memory.read(stalled(8, 16 << 10), LARGEST).await;
        assert!(matches!(endless, Err(BodyError::Busy)), "{endless:?}");
        memory
            .read(chunks(1, UNCOUNTED), LARGEST)
            .await
            .expect("it is small");
    };
    assert!(matches!(tokio::join!(slow, others).0, Err(BodyError::Slow)));
    // What was given up is free again.
    memory
        .read(chunks(6, 16 << 10), LARGEST)
        .await
        .expect("there is memory");
    drop(taken);
}

#[tokio::test(start_paused = true)]
async fn call_waits_for_memory_and_is_given_up_when_there_is_none() {
    let memory = Memory::default();
    let body = [0x0a, 0].repeat(30_000);
    let waits_until = Instant::now() + api::LONGEST_WAIT;
    let mut running = vec![memory.for_call(&body, waits_until).await.unwrap()];
    while let Ok(permit) = timeout(Duration::ZERO, memory.for_call(&body, waits_until)).await {
        running.push(permit.unwrap());
    }
    assert_eq!(running.len(), 2, "of 60 MiB each");
    for waits_for in [LONGEST_MEMORY_WAIT, LONGEST_MEMORY_WAIT / 2] {
        let begin = Instant::now();
        let refused = memory.for_call(&body, begin + waits_for).await;
        assert!(matches!(refused, Err(BodyError::Busy)));
        assert_eq!(begin.elapsed(), waits_for);
    }
    let no_wait = Instant::now();
    drop(
        memory
            .for_call(&[], no_wait)
            .await
            .expect("a small call waits for no large one"),
    );
    let waits_until = Instant::now() + api::LONGEST_WAIT;
    let (permit, ()) = tokio::join!(memory.for_call(&body, waits_until), async {
        drop(running.pop());
    });
    assert!(permit.is_ok(), "another call has ended");
}
