//! Components that cost the compiler more than their size suggests: the program refuses each by
//! name, within the limit of memory.

use std::path::Path;

use bbs_files::digest::digest_of;
use wasm_encoder::{
    BlockType, CodeSection, Component, ComponentTypeSection, Function, FunctionSection,
    Instruction, Module, ModuleSection, PrimitiveValType, RawSection, TypeSection, ValType,
};

use crate::harness::PATIENCE;
use crate::harness::database::Kind;
use crate::harness::layouts::NEWEST;
use crate::harness::packages::Packages;
use crate::harness::watch::{Watch, children, run_within_memory};

/// The version of a hostile migration.
const VERSION: u64 = 1_795_000_070;

/// The output of `bbs module inspect` for a component.
async fn inspected(component: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bomb.wasm");
    std::fs::write(&file, component).unwrap();
    let mut command = std::process::Command::new(crate::harness::bbs());
    command.args(["module", "inspect"]).arg(&file);
    let output = tokio::time::timeout(PATIENCE * 5, run_within_memory(command))
        .await
        .expect("the command ends");
    assert_eq!(
        output.status.code(),
        Some(1),
        "no component of this file is a module"
    );
    String::from_utf8(output.stderr).unwrap()
}

async fn assert_refused(component: &[u8], words: &str) {
    let error = inspected(component).await;
    assert!(
        error.contains("bomb.wasm") && error.contains(words),
        "{words:?} is not in {error:?}"
    );
}

fn component_of(module: &Module) -> Vec<u8> {
    let mut component = Component::new();
    component.section(&ModuleSection(module));
    component.finish()
}

/// A component with functions from and to 32-bit integers.
fn functions(
    parameters: usize,
    results: usize,
    bodies: impl IntoIterator<Item = Function>,
) -> Vec<u8> {
    let mut types = TypeSection::new();
    let mut declared = FunctionSection::new();
    let mut code = CodeSection::new();
    types
        .ty()
        .function(vec![ValType::I32; parameters], vec![ValType::I32; results]);
    for body in bodies {
        declared.function(0);
        code.function(&body);
    }
    let mut module = Module::new();
    module.section(&types).section(&declared).section(&code);
    component_of(&module)
}

fn function(locals: u32, instructions: impl IntoIterator<Item = Instruction<'static>>) -> Function {
    let mut function = Function::new([(locals, ValType::I32)]);
    for instruction in instructions {
        function.instruction(&instruction);
    }
    function
        .instruction(&Instruction::LocalGet(0))
        .instruction(&Instruction::End);
    function
}

fn repeated(times: usize, instructions: &[Instruction<'static>]) -> Vec<Instruction<'static>> {
    instructions
        .iter()
        .cloned()
        .cycle()
        .take(times * instructions.len())
        .collect()
}

/// Each block is reached with values of all locals of its own.
fn branches(locals: u32, blocks: u32) -> Function {
    let set = |block: u32| {
        let local = block % locals + 1;
        [
            Instruction::LocalGet(0),
            Instruction::LocalGet(local),
            Instruction::I32Add,
            Instruction::LocalSet(local),
        ]
    };
    let open = repeated(blocks as usize, &[Instruction::Block(BlockType::Empty)]);
    let jump = [
        Instruction::LocalGet(0),
        Instruction::BrTable((0..blocks).collect::<Vec<_>>().into(), 0),
    ];
    let close = (0..blocks).flat_map(|block| std::iter::once(Instruction::End).chain(set(block)));
    let used = (1..=locals).flat_map(|local| {
        [
            Instruction::LocalGet(local),
            Instruction::LocalGet(0),
            Instruction::I32Add,
            Instruction::LocalSet(0),
        ]
    });
    function(
        locals,
        open.into_iter().chain(jump).chain(close).chain(used),
    )
}

/// A component with more values and branches than one may have.
pub(super) fn above_the_limits() -> Vec<u8> {
    functions(1, 1, [branches(800, 900)])
}

/// A component with nearly as many values and branches as one may have, which takes seconds to
/// compile.
pub(super) fn at_the_limits() -> Vec<u8> {
    functions(1, 1, std::iter::repeat_n(branches(100, 100), 33))
}

/// A component of one function, whose calls leave values on the stack, which are used after as many
/// branches.
fn values_over_branches(values: usize, branches: usize) -> Vec<u8> {
    let pushed = repeated(values, &[Instruction::LocalGet(0), Instruction::Call(0)]);
    let left = repeated(branches, &[Instruction::LocalGet(0), Instruction::BrIf(0)]);
    let used = repeated(values - 1, &[Instruction::I32Add]);
    let body = [pushed, left, used, vec![Instruction::LocalSet(0)]].concat();
    functions(1, 1, [function(0, body)])
}

/// A component without branches, within all limits of its size, whose calls leave so many values on
/// the stack that the compiler takes some ten seconds or more.
pub(crate) fn many_values() -> Vec<u8> {
    values_over_branches(25_000, 0)
}

/// Goal: what a component costs the compiler is limited, not only what it is estimated to cost.
/// Method: 20 KB of code, far below every limit of its size, for which the compiler takes more than
/// 1 GiB.
#[tokio::test]
async fn memory_of_the_compiler_is_limited() {
    assert_refused(
        &values_over_branches(4_000, 2_000),
        "took more than 536870912 bytes of memory to compile",
    )
    .await;
}

/// Writes a component and a catalog that lists it with its digest, as a translator or as a
/// migration.
pub(super) fn write_folder(folder: &Path, component: &[u8], is_translator: bool) {
    let sha256 = digest_of(component);
    let file = if is_translator {
        "0.8-to-0.9.wasm".to_owned()
    } else {
        format!("{VERSION}-hostile.wasm")
    };
    let place = if is_translator {
        "kind = \"translator\"\nserves = \"0.8\"\nonto = \"0.9\"".to_owned()
    } else {
        format!("kind = \"migration\"\nversion = {VERSION}\nfollows = {NEWEST}")
    };
    let catalog = format!("[[module]]\n{place}\nfile = \"{file}\"\nsha256 = \"{sha256}\"\n");
    std::fs::create_dir_all(folder).expect("the folder can be made");
    std::fs::write(folder.join(file), component).expect("the folder can be written");
    std::fs::write(folder.join("catalog.toml"), catalog).expect("the folder can be written");
}

/// Goal: a reload with such a component is refused, and leaves neither memory nor a process behind.
#[tokio::test(flavor = "multi_thread")]
async fn reload_that_costs_too_much_to_compile_leaves_no_work_behind() {
    let packages = Packages::new();
    let installation = packages.installation(Kind::Sqlite);
    let host = installation.serve();
    let watch = Watch::on(&host);
    write_folder(
        &packages.folder("attack"),
        &values_over_branches(4_000, 2_000),
        true,
    );
    let reload = installation.command(&["module", "reload"]);
    let output = tokio::process::Command::from(reload)
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("0.8-to-0.9.wasm took more than 536870912 bytes of memory"),
        "{error}"
    );
    assert_eq!(children(host.pid()), Vec::<u32>::new(), "a process goes on");
    watch.assert_unharmed().await;
}

/// Goal: what the limits allow can be compiled within the limit of memory. Method: nearly as many
/// values and branches as a component may have. It is refused only because it has no exports.
#[tokio::test]
async fn component_at_the_limits_is_compiled() {
    let error = inspected(&at_the_limits()).await;
    assert!(error.contains("describe"), "{error}");
}

#[tokio::test]
async fn locals_times_branches_are_limited() {
    assert_refused(&above_the_limits(), "values and branches").await;
    assert_refused(
        &functions(1, 1, std::iter::repeat_n(branches(100, 100), 60)),
        "values and branches",
    )
    .await;
}

#[tokio::test]
async fn sizes_of_code_are_limited() {
    let large = function(0, repeated(100_000, &[Instruction::Nop, Instruction::Nop]));
    assert_refused(&functions(1, 1, [large]), "bytes of one function").await;
    let half = function(0, repeated(50_000, &[Instruction::Nop]));
    assert_refused(
        &functions(1, 1, std::iter::repeat_n(half, 60)),
        "bytes of code",
    )
    .await;
    assert_refused(
        &functions(1, 1, std::iter::repeat_n(function(0, []), 11_000)),
        "functions",
    )
    .await;
    let deep = [Instruction::Block(BlockType::Empty), Instruction::End]
        .map(|step| repeated(1_100, &[step]))
        .concat();
    assert_refused(&functions(1, 1, [function(0, deep)]), "nested blocks").await;
}

/// A component with the type of an instance in that of an instance, and so on.
fn types_in_types(levels: usize) -> Vec<u8> {
    const SECTION_OF_TYPES: u8 = 7;
    /// The type of an instance with one declaration, of a type.
    const LEVEL: [u8; 3] = [0x42, 1, 1];
    const EMPTY: [u8; 2] = [0x42, 0];
    let data = [&[1][..], &LEVEL.repeat(levels), &EMPTY].concat();
    let mut component = Component::new();
    component.section(&RawSection {
        id: SECTION_OF_TYPES,
        data: &data,
    });
    component.finish()
}

#[tokio::test]
async fn sizes_of_definitions_are_limited() {
    assert_refused(&functions(1_000, 1, [function(0, [])]), "parameters").await;
    assert_refused(&functions(1, 900, []), "results").await;
    let mut types = ComponentTypeSection::new();
    for _ in 0..100_000 {
        types.defined_type().option(PrimitiveValType::String);
    }
    let mut component = Component::new();
    component.section(&types);
    assert_refused(&component.finish(), "bytes of definitions").await;
    assert_refused(&types_in_types(20_000), "nested types").await;
    let mut component = Component::new();
    for _ in 0..20 {
        component.section(&ModuleSection(&Module::new()));
    }
    assert_refused(&component.finish(), "core modules").await;
}

#[tokio::test]
async fn truncated_component_is_refused_before_it_is_compiled() {
    let component = functions(1, 1, [branches(20, 60)]);
    assert_refused(
        &component[..component.len() - 5],
        "is not a WebAssembly component",
    )
    .await;
}
