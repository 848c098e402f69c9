//! `bbs api`: what a host with a folder of modules serves to its clients.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use bbs_modules::TranslatorModule;
use bbs_modules::catalog::Catalog;
use bbs_modules::signatures::TrustedKeys;
use bbs_modules::translate::{ApiVersion, Translate, Verb};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::output::OutputForm;
use crate::api::{self, NativeVersion, routes, served_until};
use crate::config::{Config, found_modules};
use crate::startup;

/// Show the versions of the API that a host serves.
#[derive(Debug, Args)]
pub struct ApiCommand {
    #[command(subcommand)]
    action: ApiAction,
}

#[derive(Debug, Subcommand)]
enum ApiAction {
    Versions(VersionsCommand),
}

/// List the versions of the API with the module that serves each, its routes, and until when it is
/// served.
///
/// All versions but Diego's current one and newer ones are deprecated. One is served until the
/// host's own version is two major versions ahead, or until its module is taken out of the folder;
/// only the oldest ones can be taken out. Which clients still call a version is counted by the
/// metric `bbs_older_version_requests_total` of a host.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct VersionsCommand {
    /// The JSON configuration file of the host, for its folder of modules and its pins.
    #[arg(long, value_name = "FILE", conflicts_with = "modules")]
    config: Option<PathBuf>,
    /// A folder of modules [default: the one that a host finds]
    #[arg(value_name = "DIR")]
    modules: Option<PathBuf>,
    #[command(flatten)]
    form: OutputForm,
}

/// A version, as it is printed.
#[derive(Debug, Serialize)]
struct VersionSummary {
    version: ApiVersion,
    /// Whether clients of the version are answered: not above a pin.
    served: bool,
    /// The first native version of a host that no longer serves it; `None` for the native versions.
    deprecated_until: Option<ApiVersion>,
    /// The module that serves it; `None` for the host itself.
    module: Option<ModuleName>,
    /// The methods that the version adds to, or has instead of, those of the version after it.
    methods: Vec<MethodSummary>,
    /// Methods of the version after it that the version does not have.
    hides: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ModuleName {
    file: String,
    sha256: String,
}

#[derive(Debug, Serialize)]
struct MethodSummary {
    name: String,
    verb: Verb,
    /// Below the root of the version, or Diego's whole path, which needs no version.
    path: String,
}

impl ApiCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The configuration or a module cannot be used.
    pub fn run(self) -> anyhow::Result<()> {
        let ApiAction::Versions(command) = self.action;
        command.run()
    }
}

impl VersionsCommand {
    fn run(self) -> anyhow::Result<()> {
        let (catalog, pin) = match &self.config {
            Some(config) => {
                let mut config = Config::read(config)?;
                let folders = config.module_folders()?;
                let sandbox = startup::sandbox(&config)?;
                let catalog = startup::load_catalog(&folders, &config.trusted_keys, &sandbox)?;
                startup::pin_release(&mut config, &catalog)?;
                (catalog, config.pin_api_version)
            }
            None => {
                let folder = self.modules.map_or_else(found_modules, Ok).context(
                    "there are no modules beside the executable; name a folder, or a configuration with `--config`",
                )?;
                let sandbox = super::module::sandbox()?;
                (
                    startup::load_catalog(&[folder], &TrustedKeys::default(), &sandbox)?,
                    None,
                )
            }
        };
        let versions = summaries(&catalog, pin.as_deref())?;
        self.form
            .print(&versions, || versions.iter().map(text).collect::<String>())
    }
}

/// The versions, newest first, and then side shapes.
fn summaries(catalog: &Catalog, pin: Option<&str>) -> anyhow::Result<Vec<VersionSummary>> {
    let served = api::served(startup::translators(catalog), pin)?;
    let (of_diego, sides): (Vec<_>, Vec<_>) = catalog
        .translators()
        .iter()
        .partition(|module| module.manifest().serves.side.is_none());
    let native = NativeVersion::ALL
        .into_iter()
        .rev()
        .map(|version| native_summary(version, &served));
    let older = of_diego
        .into_iter()
        .rev()
        .chain(sides)
        .map(|module| summary(module, &served));
    Ok(native.chain(older).collect())
}

/// The whole paths of Diego's current version need no version; those of a newer one are below its
/// root.
fn native_summary(native: NativeVersion, served: &[ApiVersion]) -> VersionSummary {
    let path = |path: &str| match native {
        NativeVersion::Diego => format!("/v1/{path}"),
        NativeVersion::Definitions => path.to_owned(),
    };
    VersionSummary {
        version: native.number(),
        served: served.contains(&native.number()),
        deprecated_until: None,
        module: None,
        methods: routes(native)
            .map(|route| MethodSummary {
                name: route.name.to_owned(),
                verb: Verb::Post,
                path: path(route.path),
            })
            .collect(),
        hides: Vec::new(),
    }
}

fn summary(module: &Arc<TranslatorModule>, served: &[ApiVersion]) -> VersionSummary {
    let manifest = module.manifest();
    let methods = manifest.methods.iter().map(|method| MethodSummary {
        name: method.name.clone(),
        verb: method.verb,
        path: method.path.clone(),
    });
    VersionSummary {
        version: manifest.serves,
        served: served.contains(&manifest.serves),
        deprecated_until: NativeVersion::of(manifest.serves.without_side())
            .is_none()
            .then(|| served_until(manifest.serves)),
        module: Some(ModuleName {
            file: module.file().to_owned(),
            sha256: module.digest().to_owned(),
        }),
        methods: methods.collect(),
        hides: manifest.hides.clone(),
    }
}

fn text(summary: &VersionSummary) -> String {
    let VersionSummary {
        version,
        served,
        deprecated_until,
        module,
        methods,
        hides,
    } = summary;
    let by = module
        .as_ref()
        .map_or_else(|| "this host".to_owned(), |module| module.file.clone());
    let until = deprecated_until
        .map(|until| format!(", deprecated: until API {until}"))
        .unwrap_or_default();
    let pinned = if *served {
        ""
    } else {
        ", not served: above the pin, or too old"
    };
    let mut lines = vec![format!("{version}  {by}{until}{pinned}")];
    lines.extend(methods.iter().map(|method| {
        format!(
            "  {:<4} {}  {}",
            method.verb.name(),
            method.path,
            method.name
        )
    }));
    lines.extend(hides.iter().map(|hidden| format!("  without {hidden}")));
    lines.join("\n") + "\n"
}
