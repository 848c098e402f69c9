//! Components that cost the compiler more than their size suggests: the program refuses each by name, within the limit of
//! memory.

use wasm_encoder::{
    BlockType, CodeSection, Component, ComponentTypeSection, Function, FunctionSection, Instruction, Module,
    ModuleSection, PrimitiveValType, TypeSection, ValType,
};

use crate::harness::PATIENCE;
use crate::harness::watch::run_within_memory;

/// What the program says of a component.
async fn inspected(component: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bomb.wasm");
    std::fs::write(&file, component).unwrap();
    let mut command = std::process::Command::new(crate::harness::bbs());
    command.args(["module", "inspect"]).arg(&file);
    let output = tokio::time::timeout(PATIENCE, run_within_memory(command)).await.expect("the command ends");
    assert_eq!(output.status.code(), Some(1), "no component of this file is a module");
    String::from_utf8(output.stderr).unwrap()
}

async fn assert_refused(component: &[u8], words: &str) {
    let error = inspected(component).await;
    assert!(error.contains("bomb.wasm") && error.contains(words), "{words:?} is not in {error:?}");
}

fn component_of(module: &Module) -> Vec<u8> {
    let mut component = Component::new();
    component.section(&ModuleSection(module));
    component.finish()
}

/// A component with functions from and to 32-bit integers.
fn functions(parameters: usize, results: usize, bodies: impl IntoIterator<Item = Function>) -> Vec<u8> {
    let (mut types, mut declared, mut code) = (TypeSection::new(), FunctionSection::new(), CodeSection::new());
    types.ty().function(vec![ValType::I32; parameters], vec![ValType::I32; results]);
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
    function.instruction(&Instruction::LocalGet(0)).instruction(&Instruction::End);
    function
}

fn repeated(times: usize, instructions: &[Instruction<'static>]) -> Vec<Instruction<'static>> {
    instructions.iter().cloned().cycle().take(times * instructions.len()).collect()
}

/// Each block is reached with values of all locals of its own.
fn branches(locals: u32, blocks: u32) -> Function {
    let set = |block: u32| {
        let local = block % locals + 1;
        [Instruction::LocalGet(0), Instruction::LocalGet(local), Instruction::I32Add, Instruction::LocalSet(local)]
    };
    let open = repeated(blocks as usize, &[Instruction::Block(BlockType::Empty)]);
    let jump = [Instruction::LocalGet(0), Instruction::BrTable((0..blocks).collect::<Vec<_>>().into(), 0)];
    let close = (0..blocks).flat_map(|block| std::iter::once(Instruction::End).chain(set(block)));
    let used = (1..=locals).flat_map(|local| {
        [Instruction::LocalGet(local), Instruction::LocalGet(0), Instruction::I32Add, Instruction::LocalSet(0)]
    });
    function(locals, open.into_iter().chain(jump).chain(close).chain(used))
}

/// A component with more values and branches than one may have.
pub(super) fn above_the_limits() -> Vec<u8> {
    functions(1, 1, [branches(800, 900)])
}

/// A component with nearly as many values and branches as one may have, which takes seconds to compile.
pub(super) fn at_the_limits() -> Vec<u8> {
    functions(1, 1, std::iter::repeat_n(branches(100, 100), 33))
}

/// Goal: what the limits allow can be compiled within the limit of memory.
/// Method: nearly as many values and branches as a component may have. It is refused only because it has no exports.
#[tokio::test]
async fn component_at_the_limits_is_compiled() {
    let error = inspected(&at_the_limits()).await;
    assert!(error.contains("describe"), "{error}");
}

#[tokio::test]
async fn locals_times_branches_are_limited() {
    assert_refused(&above_the_limits(), "values and branches").await;
    assert_refused(&functions(1, 1, std::iter::repeat_n(branches(100, 100), 60)), "values and branches").await;
}

#[tokio::test]
async fn sizes_of_code_are_limited() {
    let large = function(0, repeated(100_000, &[Instruction::Nop, Instruction::Nop]));
    assert_refused(&functions(1, 1, [large]), "bytes of one function").await;
    let half = function(0, repeated(50_000, &[Instruction::Nop]));
    assert_refused(&functions(1, 1, std::iter::repeat_n(half, 60)), "bytes of code").await;
    assert_refused(&functions(1, 1, std::iter::repeat_n(function(0, []), 11_000)), "functions").await;
    let deep = [Instruction::Block(BlockType::Empty), Instruction::End].map(|step| repeated(1_100, &[step])).concat();
    assert_refused(&functions(1, 1, [function(0, deep)]), "nested blocks").await;
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
    let mut component = Component::new();
    for _ in 0..20 {
        component.section(&ModuleSection(&Module::new()));
    }
    assert_refused(&component.finish(), "core modules").await;
}

#[tokio::test]
async fn truncated_component_is_refused_before_it_is_compiled() {
    let component = functions(1, 1, [branches(20, 60)]);
    assert_refused(&component[..component.len() - 5], "is not a WebAssembly component").await;
}
