//! Files that are no modules, and components that cost the compiler more than their size suggests.

use std::path::Path;

use wasm_encoder::{
    BlockType, CodeSection, Component, ComponentTypeSection, Function, FunctionSection, Instruction, Module,
    ModuleSection, PrimitiveValType, TypeSection, ValType,
};

use super::*;

fn sandbox() -> Sandbox {
    Sandbox::new(Limits::default(), None).unwrap()
}

fn refusal(component: &[u8]) -> String {
    let path = Path::new("bomb.wasm");
    sandbox().compile(path, component, &digest(component)).expect_err("the bomb is refused").to_string()
}

#[track_caller]
fn assert_refused(component: &[u8], words: &str) {
    let error = refusal(component);
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

#[test]
fn component_within_the_limits_is_compiled() {
    let component = functions(1, 1, [branches(20, 60)]);
    sandbox().compile(Path::new("fine.wasm"), &component, &digest(&component)).unwrap();
}

#[test]
fn locals_times_branches_are_limited() {
    assert_refused(&functions(1, 1, [branches(800, 900)]), "values and branches");
    assert_refused(&functions(1, 1, std::iter::repeat_n(branches(100, 100), 60)), "values and branches");
}

#[test]
fn sizes_of_code_are_limited() {
    let large = function(0, repeated(100_000, &[Instruction::Nop, Instruction::Nop]));
    assert_refused(&functions(1, 1, [large]), "bytes of one function");
    let half = function(0, repeated(50_000, &[Instruction::Nop]));
    assert_refused(&functions(1, 1, std::iter::repeat_n(half, 60)), "bytes of code");
    assert_refused(&functions(1, 1, std::iter::repeat_n(function(0, []), 11_000)), "functions");
    let deep = [Instruction::Block(BlockType::Empty), Instruction::End].map(|step| repeated(1_100, &[step])).concat();
    assert_refused(&functions(1, 1, [function(0, deep)]), "nested blocks");
}

#[test]
fn sizes_of_definitions_are_limited() {
    assert_refused(&functions(1_000, 1, [function(0, [])]), "parameters");
    assert_refused(&functions(1, 900, []), "results");
    let mut types = ComponentTypeSection::new();
    for _ in 0..100_000 {
        types.defined_type().option(PrimitiveValType::String);
    }
    let mut component = Component::new();
    component.section(&types);
    assert_refused(&component.finish(), "bytes of definitions");
    let mut component = Component::new();
    for _ in 0..20 {
        component.section(&ModuleSection(&Module::new()));
    }
    assert_refused(&component.finish(), "core modules");
}

#[test]
fn truncated_component_is_refused_before_it_is_compiled() {
    let component = functions(1, 1, [branches(20, 60)]);
    assert!(refusal(&component[..component.len() - 5]).contains("is not a WebAssembly component"));
}

#[test]
fn module_file_is_a_regular_file_of_limited_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let refused = |name: &str| {
        let error = sandbox().read(&path(name)).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    };
    std::os::unix::fs::symlink("/dev/zero", path("endless.wasm")).unwrap();
    assert!(refused("endless.wasm").contains("not a regular file"), "{}", refused("endless.wasm"));
    let made = std::process::Command::new("mkfifo").arg(path("fifo.wasm")).status().unwrap();
    assert!(made.success());
    assert!(refused("fifo.wasm").contains("not a regular file"), "{}", refused("fifo.wasm"));
    let large = std::fs::File::create(path("large.wasm")).unwrap();
    large.set_len(Limits::default().component_bytes + 1).unwrap();
    assert!(refused("large.wasm").contains("not a WebAssembly file"), "{}", refused("large.wasm"));
    std::fs::write(path("large.wasm"), COMPONENT).unwrap();
    large.set_len(Limits::default().component_bytes + 1).unwrap();
    assert!(refused("large.wasm").contains("is larger than"), "{}", refused("large.wasm"));
}
