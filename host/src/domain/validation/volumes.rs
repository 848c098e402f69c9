//! Validation of what is mounted into a container: volumes and files.

use bbs_proto::models::{File, VolumeMount};

use super::{Findings, Validate};

const LONGEST_FILES: usize = 1024 * 1024;

impl Validate for VolumeMount {
    fn validate(&self, findings: &mut Findings) {
        if self.driver.is_empty() {
            findings.add("invalid volume_mount driver");
        }
        if !matches!(&self.mode[..], b"r" | b"rw") {
            findings.add("invalid volume_mount mode");
        }
        if self
            .shared
            .as_ref()
            .is_some_and(|device| device.volume_id.is_empty())
        {
            findings.add("invalid volume_mount volume id");
        }
        if self
            .dedicated
            .as_ref()
            .is_some_and(|device| device.mounter_id.is_empty())
        {
            findings.add("invalid volume_mount mounter id");
        }
    }
}

/// Limits the total size of the files; their paths are not validated.
pub(super) fn files(files: &[File], findings: &mut Findings) {
    let length = files.iter().map(|file| file.content.len()).sum();
    findings.at_most(LONGEST_FILES, "volumeMountedFiles", length);
}

#[cfg(test)]
mod tests {
    use bbs_proto::models::{DedicatedDevice, SharedDevice};

    use super::super::check;
    use super::*;

    fn mount() -> VolumeMount {
        VolumeMount {
            driver: b"nfs".to_vec(),
            mode: b"rw".to_vec(),
            ..Default::default()
        }
    }

    fn found(mount: &VolumeMount) -> String {
        check(mount).err().unwrap_or_default()
    }

    #[test]
    fn mount_needs_a_driver_and_a_mode() {
        assert_eq!(found(&mount()), "");
        assert_eq!(
            found(&VolumeMount {
                mode: b"r".to_vec(),
                ..mount()
            }),
            ""
        );
        assert_eq!(
            found(&VolumeMount {
                driver: vec![],
                ..mount()
            }),
            "invalid volume_mount driver"
        );
        for mode in ["", "w", "RW", "rw ", "ro"] {
            assert_eq!(
                found(&VolumeMount {
                    mode: mode.into(),
                    ..mount()
                }),
                "invalid volume_mount mode",
                "{mode:?}"
            );
        }
    }

    #[test]
    fn device_needs_an_id() {
        let shared = |id: &str| {
            Some(SharedDevice {
                volume_id: id.into(),
                ..Default::default()
            })
        };
        let dedicated = |id: &str| {
            Some(DedicatedDevice {
                mounter_id: id.into(),
                ..Default::default()
            })
        };
        assert_eq!(
            found(&VolumeMount {
                shared: shared("v"),
                dedicated: dedicated("m"),
                ..mount()
            }),
            ""
        );
        assert_eq!(
            found(&VolumeMount {
                shared: shared(""),
                ..mount()
            }),
            "invalid volume_mount volume id"
        );
        assert_eq!(
            found(&VolumeMount {
                dedicated: dedicated(""),
                ..mount()
            }),
            "invalid volume_mount mounter id"
        );
        assert_eq!(
            found(&VolumeMount {
                shared: shared(""),
                dedicated: dedicated(""),
                ..VolumeMount::default()
            }),
            "invalid volume_mount driver, invalid volume_mount mode, invalid volume_mount volume id, \
             invalid volume_mount mounter id"
        );
    }

    #[test]
    fn files_are_limited_to_one_mebibyte_in_total() {
        let found = |lengths: &[usize]| {
            let all: Vec<File> = lengths
                .iter()
                .map(|length| File {
                    content: vec![0; *length],
                    ..Default::default()
                })
                .collect();
            let mut findings = Findings::default();
            files(&all, &mut findings);
            findings.to_string()
        };
        assert_eq!(found(&[]), "");
        assert_eq!(found(&[1_048_576]), "");
        assert_eq!(found(&[1_048_575, 1]), "");
        assert_eq!(found(&[1_048_577]), "Invalid field: volumeMountedFiles");
        assert_eq!(
            found(&[1_048_575, 1, 1]),
            "Invalid field: volumeMountedFiles"
        );
    }
}
