//! JSON as it rests in columns: what is read can be written, and what was written reads and is written the same again.

#![no_main]

use bbs_fuzz::model::routes::Routes;
use bbs_fuzz::model::tags;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    if let Ok(routes) = Routes::from_json(text) {
        let written = Routes::to_json(routes.as_ref()).expect("what was read is JSON");
        let again = Routes::from_json(&written).expect("what was written reads");
        // Not compared with what was read: a route's own JSON rests escaped for HTML, as Go's does.
        assert_eq!(Routes::to_json(again.as_ref()), Ok(written), "written the same every time");
    }
    if let Ok(read) = tags::metric_tags_from_json(text) {
        assert_eq!(tags::metric_tags_from_json(&tags::metric_tags_to_json(&read)), Ok(read));
    }
    if let Ok(read) = tags::texts_from_json(text) {
        assert_eq!(tags::texts_from_json(&tags::texts_to_json(&read)), Ok(read));
    }
    let _ = tags::text_map_from_json(text);
    let _ = tags::hostnames_from_json(text);
});
