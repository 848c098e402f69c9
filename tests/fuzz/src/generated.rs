//! Structures that decoders read, made of arbitrary bytes. Names are few, so that they refer to
//! each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use bbs_lens::budget::{BATCH_BYTES, BatchBudget};
use bbs_lens::layout::columns::{
    Batch, ColumnData, NEW_ROW, Outcome, Refusal, Shape, TableData, Written,
};
use bbs_lens::layout::history::{LayoutHistory, Way};
use bbs_lens::layout::manifest::{Access, Change, Direction, Manifest};
use bbs_lens::layout::schema::{Column, ColumnType, Index, Literal, Sealing, Table};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::transform::{RunArguments, Transform, TransformError};
use bbs_lens::{
    Arguments, BatchColumn, Lens, LensInput, OpenedColumns, Residue, ResidueValue, Search,
    TableRows,
};
use libfuzzer_sys::arbitrary::Unstructured;

use crate::modules::catalog::{CatalogContent, CatalogEntry, CatalogPosition};
use crate::modules::translate::{AnswerForm, ApiVersion, Method, TranslatorManifest, Verb};

const NAMES: [&str; 6] = ["a", "b", "guid", "record_version", "created_at", "A\n"];
/// Elements of a list.
const MOST: usize = 4;

pub struct Generator<'a>(Unstructured<'a>);

impl<'a> Generator<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// False once the bytes are used up.
    pub fn flag(&mut self) -> bool {
        self.0.arbitrary().unwrap_or_default()
    }

    fn number(&mut self) -> u32 {
        if self.flag() {
            self.0.arbitrary().unwrap_or_default()
        } else {
            self.0.int_in_range(0..=9).unwrap_or_default()
        }
    }

    fn list<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        let length = self.0.int_in_range(0..=MOST).unwrap_or_default();
        (0..length).map(|_| make(self)).collect()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.0.int_in_range(0..=32).unwrap_or_default();
        self.0.bytes(length).unwrap_or_default().to_vec()
    }

    fn name(&mut self) -> String {
        self.0
            .choose(&NAMES)
            .copied()
            .unwrap_or_default()
            .to_owned()
    }

    fn names(&mut self) -> Vec<String> {
        self.list(Self::name)
    }

    fn column(&mut self) -> Column {
        let kinds = [
            ColumnType::Boolean,
            ColumnType::Integer,
            ColumnType::BigInteger,
            ColumnType::Varchar(9),
            ColumnType::LongText,
        ];
        let sealings = [Sealing::Plain, Sealing::Sealed, Sealing::Enveloped];
        let default = match self.number() % 4 {
            0 => Some(Literal::Boolean(true)),
            1 => Some(Literal::Integer(i64::from(self.number()))),
            2 => Some(Literal::Text(self.name())),
            _ => None,
        };
        Column {
            name: self.name(),
            kind: self.0.choose(&kinds).copied().unwrap_or(ColumnType::Text),
            nullable: self.flag(),
            default,
            sealing: self.0.choose(&sealings).copied().unwrap_or(Sealing::Plain),
        }
    }

    pub fn columns(&mut self) -> Vec<Column> {
        self.list(Self::column)
    }

    fn table(&mut self) -> Table {
        Table {
            name: self.name(),
            columns: self.columns(),
            primary_key: self.names(),
            indexes: self.list(|own| Index {
                name: own.name(),
                columns: own.names(),
            }),
            partition_key: self.flag().then(|| self.name()),
        }
    }

    fn change(&mut self) -> Change {
        match self.number() % 11 {
            0 | 1 => Change::CreateTable(self.table()),
            2 => Change::DropTable { table: self.name() },
            3 => Change::RenameTable {
                from: self.name(),
                to: self.name(),
            },
            4 => Change::AddColumn {
                table: self.name(),
                column: self.column(),
            },
            5 => Change::AlterColumn {
                table: self.name(),
                column: self.column(),
            },
            6 => Change::DropColumn {
                table: self.name(),
                column: self.name(),
            },
            7 => Change::RenameColumn {
                table: self.name(),
                from: self.name(),
                to: self.name(),
            },
            8 => Change::MoveColumn {
                column: self.name(),
                from: self.name(),
                to: self.name(),
            },
            9 => Change::SetPrimaryKey {
                table: self.name(),
                columns: self.names(),
            },
            _ => Change::CreateIndex {
                table: self.name(),
                index: Index {
                    name: self.name(),
                    columns: self.names(),
                },
            },
        }
    }

    pub fn access(&mut self) -> Access {
        Access {
            table: self.name(),
            reads: self.names(),
            writes: self.names(),
            encodings: Vec::new(),
            reshapes: self.flag(),
        }
    }

    pub fn manifest(&mut self, version: u64) -> Manifest {
        Manifest {
            version,
            name: "step".to_owned(),
            summary: "A step.".to_owned(),
            changes: self.list(Self::change),
            up: self.list(Self::access),
            down: self.list(Self::access),
            reversible: self.flag(),
            leaves_residue: self.flag(),
            removes_rows: self.flag(),
        }
    }

    pub fn translator(&mut self) -> TranslatorManifest {
        let method = |own: &mut Self| Method {
            name: own.name(),
            verb: if own.flag() { Verb::Get } else { Verb::Post },
            path: format!("{}{}", if own.flag() { "/v1/" } else { "" }, own.name()),
            answer: if own.flag() {
                AnswerForm::Message
            } else {
                AnswerForm::Events(own.name())
            },
        };
        TranslatorManifest {
            serves: ApiVersion::new(self.number(), self.number()),
            onto: ApiVersion::new(self.number(), self.number()),
            name: self.name(),
            summary: self.name(),
            methods: self.list(method),
            hides: self.names(),
        }
    }

    /// Data of any form.
    fn data(&mut self) -> ColumnData {
        ColumnData {
            validity: self.bytes(),
            offsets: self.list(Self::number),
            values: self.bytes(),
        }
    }

    /// Units of one access, as a host gives them to a module.
    pub fn batch(&mut self) -> Batch {
        let mut unit_offsets = vec![0_u32];
        for rows in self.list(|own| own.number() % 3) {
            unit_offsets.push(unit_offsets[unit_offsets.len() - 1] + rows);
        }
        Batch {
            tables: vec![TableData {
                unit_offsets,
                columns: Vec::new(),
            }],
            residue: Vec::new(),
        }
    }

    /// A catalog whose parts need not fit together.
    pub fn catalog(&mut self) -> CatalogContent {
        let entry = |own: &mut Self| CatalogEntry {
            file: own.name() + ".wasm",
            sha256: if own.flag() {
                "0123456789abcdef".repeat(4)
            } else {
                own.name()
            },
            position: if own.flag() {
                CatalogPosition::Migration {
                    version: own.number().into(),
                    follows: own.flag().then(|| own.number().into()),
                }
            } else {
                CatalogPosition::Translator {
                    serves: ApiVersion::new(own.number(), own.number()),
                    onto: ApiVersion::new(own.number(), own.number()),
                }
            },
        };
        CatalogContent {
            name: self.flag().then(|| self.name()),
            serial: self.flag().then(|| self.0.arbitrary().unwrap_or_default()),
            releases: self.flag().then(|| self.name()),
            entries: self.list(entry),
        }
    }

    /// A node of etcd, and the number of leaves in it.
    pub fn node(&mut self, depth: usize) -> (serde_json::Value, usize) {
        if depth > 0 && self.flag() {
            let nodes = self.list(|own| own.node(depth - 1));
            let leaves = nodes.iter().map(|(_, leaves)| leaves).sum();
            let nodes: Vec<_> = nodes.into_iter().map(|(node, _)| node).collect();
            return (
                serde_json::json!({"key": self.name(), "dir": true, "nodes": nodes}),
                leaves,
            );
        }
        let value = String::from_utf8_lossy(&self.bytes()).into_owned();
        let mut leaf =
            serde_json::json!({"key": self.name(), "value": value, "modifiedIndex": self.number()});
        if self.flag() {
            leaf["expiration"] = "2015-01-02T03:04:05.678Z".into();
        }
        (leaf, 1)
    }

    /// A place below a length, and a byte to write there.
    pub fn damage(&mut self, length: usize) -> (usize, u8) {
        (
            self.0
                .int_in_range(0..=length.saturating_sub(1))
                .unwrap_or_default(),
            self.0.arbitrary().unwrap_or_default(),
        )
    }

    pub fn outcome(&mut self) -> Outcome {
        let origin = |own: &mut Self| if own.flag() { NEW_ROW } else { own.number() };
        let written = |own: &mut Self| Written {
            shape: own.flag().then(|| Shape {
                unit_offsets: own.list(Self::number),
                origins: own.list(origin),
            }),
            columns: own.list(Self::data),
        };
        Outcome {
            tables: vec![written(self)],
            refused: self.list(|own| Refusal {
                unit: own.number(),
                reason: own.name(),
            }),
            residue: self.list(|own| own.flag().then(|| own.bytes())),
        }
    }
}

/// A migration without a row function.
struct Declared(Manifest);

impl Transform for Declared {
    fn manifest(&self) -> &Manifest {
        &self.0
    }

    fn digest(&self) -> &str {
        "d1935"
    }

    fn apply(&self, _: Direction, _: &RunArguments, _: &Batch) -> Result<Outcome, TransformError> {
        Err(TransformError {
            reason: "no row function".to_owned(),
            is_slow: false,
        })
    }
}

pub fn transforms(manifests: impl IntoIterator<Item = Manifest>) -> Vec<Arc<dyn Transform>> {
    manifests
        .into_iter()
        .map(|manifest| Arc::new(Declared(manifest)) as Arc<dyn Transform>)
        .collect()
}

/// Gives saved values, which may be of any form, back to two rows: a migration up that adds columns
/// and a table, after one down that dropped them.
pub fn restore(bytes: &[u8]) {
    let mut generator = Generator::new(bytes);
    let manifests = [first(), second()];
    let layouts = LayoutHistory::new(&manifests).expect("a valid layout history");
    let restorable = BTreeSet::from([(2, "apps".to_owned()), (2, "others".to_owned())]);
    let lens = Lens::new(
        Way::within(&layouts, 1, 2),
        &transforms(manifests),
        restorable,
    )
    .expect("it composes");
    let mut guids = ColumnBuilder::new(Encoding::Text);
    [b"g0", b"g1"]
        .into_iter()
        .for_each(|guid| guids.push(Value::Text(guid)));
    let guids = BatchColumn::new(guids.finish(), Sealing::Plain);
    let columns = [("guid".to_owned(), guids)].into();
    let apps = TableRows {
        unit_offsets: vec![0, 1, 2],
        columns,
    };
    let units = LensInput {
        units: 2,
        keys: None,
        tables: [("apps".to_owned(), apps)].into(),
        opened: OpenedColumns::new(),
    };
    let mut left = Residue::default();
    for _ in 0..generator.number() % 4 {
        let (unit, table) = (
            usize::from(generator.flag()),
            if generator.flag() { "apps" } else { "others" },
        );
        let mut row_key = Vec::new();
        Value::Text(if unit == 0 { b"g0" } else { b"g1" }).encode(&mut row_key);
        let (row_key, digest) = (
            if generator.flag() {
                generator.bytes()
            } else {
                row_key
            },
            Vec::new(),
        );
        left.add(
            2,
            table,
            unit,
            ResidueValue {
                row_key,
                digest,
                bytes: saved(&mut generator),
            },
        );
    }
    let arguments = Arguments::from([(
        2,
        RunArguments {
            started_at_ns: 1,
            namespace: uuid::Uuid::nil(),
        },
    )]);
    for group in 0..lens.groups.len() {
        let budget = BatchBudget::of(BATCH_BYTES);
        let applied = lens.apply(
            group,
            &units,
            &left.clone().of_edited(),
            &arguments,
            Search::First,
            &budget,
        );
        let applied = match applied {
            Ok(applied) => applied,
            Err(errors) => {
                return assert!(errors[0].to_string().contains("is damaged"), "{errors:?}");
            }
        };
        for (name, table) in &applied.tables {
            let rows = *table.unit_offsets.last().expect("an offset") as usize;
            for (column, values) in &table.columns {
                let definition = lens.target.tables[name]
                    .find_column(column)
                    .expect("a column of the layout");
                for row in 0..rows {
                    let _ = values.data.get(definition.kind.into(), row);
                }
            }
        }
    }
}

/// A saved row: arbitrary bytes, or values of arbitrary types under names of columns.
fn saved(generator: &mut Generator<'_>) -> Vec<u8> {
    if generator.flag() {
        return generator.bytes();
    }
    let mut bytes = Vec::new();
    for name in ["guid", "word", "flag", "number"] {
        let text = generator.bytes();
        let value = match generator.number() % 4 {
            0 => Value::Boolean(true),
            1 => Value::Integer(7),
            2 => Value::Text(&text),
            _ => Value::Null,
        };
        Value::Text(name.as_bytes()).encode(&mut bytes);
        value.encode(&mut bytes);
    }
    bytes
}

fn table(name: &str, columns: Vec<Column>) -> Table {
    let guid = Column {
        nullable: false,
        ..column("guid", ColumnType::Varchar(255))
    };
    Table {
        name: name.to_owned(),
        columns: [vec![guid], columns].concat(),
        primary_key: vec!["guid".to_owned()],
        indexes: Vec::new(),
        partition_key: Some("guid".to_owned()),
    }
}

fn column(name: &str, kind: ColumnType) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        nullable: true,
        default: None,
        sealing: Sealing::Plain,
    }
}

fn columns() -> [Column; 3] {
    [
        column("word", ColumnType::LongText),
        column("flag", ColumnType::Boolean),
        column("number", ColumnType::BigInteger),
    ]
}

fn first() -> Manifest {
    Manifest {
        changes: vec![Change::CreateTable(table("apps", Vec::new()))],
        ..Generator::new(&[]).manifest(1)
    }
}

fn second() -> Manifest {
    let added = columns().map(|column| Change::AddColumn {
        table: "apps".to_owned(),
        column,
    });
    let changes = [
        added.to_vec(),
        vec![Change::CreateTable(table("others", columns().to_vec()))],
    ]
    .concat();
    Manifest {
        changes,
        reversible: true,
        ..Generator::new(&[]).manifest(2)
    }
}
