//! The cost of a component for the compiler, estimated from its bytes before the compiler sees
//! them. Owns the estimate; the numbers are in `limits`. What the estimate does not see is limited
//! by the process that compiles (`compiler.rs`).
//!
//! The compiler's memory grows with the product of the values of a function and its branches, since
//! each value can differ on each branch: a file of 20 KB with 1,000 locals in 1,000 loops takes 70
//! MB and 14 s, and four times that in a file of twice the size. Everything else is linear in the
//! number of bytes, and limited by them.

use wasmparser::{
    BinaryReaderError, ComponentType, CompositeInnerType, FunctionBody, Operator, Parser, Payload,
};

use super::super::limits::CodeLimits;

/// Why a component is not compiled.
#[derive(Debug)]
pub(super) enum ComplexityError {
    /// A measure of it exceeds its limit.
    Excess {
        /// The measure, in the plural.
        what: &'static str,
        found: u64,
        limit: u64,
    },
    /// The bytes are no component.
    Malformed(BinaryReaderError),
}

impl From<BinaryReaderError> for ComplexityError {
    fn from(error: BinaryReaderError) -> Self {
        Self::Malformed(error)
    }
}

/// Values on the operand stack of an ordinary function.
const STACK_VALUES: u64 = 16;

/// One operand stack value more is assumed for this many bytes of a function: a value that is
/// computed takes three bytes, and few of them stay on the stack over a branch.
const BYTES_PER_STACK_VALUE: u64 = 512;

/// Branches that a target of a jump table counts as: the compiler makes a block for each, which
/// sets all values.
const BRANCHES_PER_TARGET: u64 = 4;

/// Checks a component against the limits.
pub(super) fn check(component: &[u8], limits: &CodeLimits) -> Result<(), ComplexityError> {
    let mut totals = Totals::new(component, limits);
    for payload in Parser::new(0).parse_all(component) {
        totals.add(payload?)?;
    }
    Ok(())
}

/// The sums over all core modules of a component so far.
struct Totals<'a> {
    component: &'a [u8],
    limits: &'a CodeLimits,
    core_modules: u64,
    definition_bytes: u64,
    functions: u64,
    code_bytes: u64,
    /// Most parameters of a type, which a block can have too.
    parameters: u64,
    branch_values: u64,
}

impl<'a> Totals<'a> {
    fn new(component: &'a [u8], limits: &'a CodeLimits) -> Self {
        Self {
            component,
            limits,
            core_modules: 0,
            definition_bytes: 0,
            functions: 0,
            code_bytes: 0,
            parameters: 0,
            branch_values: 0,
        }
    }

    fn add(&mut self, payload: Payload<'_>) -> Result<(), ComplexityError> {
        let limits = self.limits;
        match payload {
            Payload::CodeSectionEntry(body) => return self.add_function(&body),
            // The code and the data of the component are limited by their own numbers and by the
            // size of the file.
            Payload::CodeSectionStart { .. }
            | Payload::DataSection(_)
            | Payload::CustomSection(_) => {}
            Payload::ModuleSection { .. } => {
                self.core_modules += 1;
                at_most(self.core_modules, limits.core_modules, "core modules")?;
            }
            // `bbs module build` nests none, and the compiler would generate code for calls between
            // them.
            Payload::ComponentSection { .. } => at_most(1, 0, "nested components")?,
            Payload::TypeSection(types) => {
                self.add_definitions(types.range())?;
                for group in types {
                    for function in group?.into_types().filter_map(|of_type| {
                        match of_type.composite_type.inner {
                            CompositeInnerType::Func(function) => Some(function),
                            _ => None,
                        }
                    }) {
                        let parameters = function.params().len() as u64;
                        at_most(parameters, limits.parameters, "parameters of a function")?;
                        at_most(
                            function.results().len() as u64,
                            limits.results,
                            "results of a function",
                        )?;
                        self.parameters = self.parameters.max(parameters);
                    }
                }
            }
            Payload::ComponentTypeSection(types) => {
                self.add_definitions(types.range())?;
                // The reader of types calls itself for each type in another one.
                let nested = nested_types(&self.component[types.range()]);
                at_most(nested, limits.nested_types, "nested types")?;
                for definition in types {
                    if let ComponentType::Component(_) = definition? {
                        at_most(1, 0, "types of components")?;
                    }
                }
            }
            other => {
                if let Some((_, range)) = other.as_section() {
                    self.add_definitions(range)?;
                }
            }
        }
        Ok(())
    }

    fn add_definitions(&mut self, range: std::ops::Range<usize>) -> Result<(), ComplexityError> {
        self.definition_bytes += range.len() as u64;
        at_most(
            self.definition_bytes,
            self.limits.definition_bytes,
            "bytes of definitions",
        )
    }

    fn add_function(&mut self, body: &FunctionBody<'_>) -> Result<(), ComplexityError> {
        let limits = self.limits;
        let bytes = body.range().len() as u64;
        self.functions += 1;
        self.code_bytes += bytes;
        at_most(self.functions, limits.functions, "functions")?;
        at_most(bytes, limits.function_bytes, "bytes of one function")?;
        at_most(self.code_bytes, limits.code_bytes, "bytes of code")?;
        let mut values = STACK_VALUES + bytes / BYTES_PER_STACK_VALUE + self.parameters;
        for locals in body.get_locals_reader()? {
            values = values.saturating_add(locals?.0.into());
        }
        self.branch_values = self
            .branch_values
            .saturating_add(values.saturating_mul(branches(body, limits)?));
        at_most(
            self.branch_values,
            limits.branch_values,
            "combinations of values and branches",
        )
    }
}

/// The number of branches of a function, at least 1.
fn branches(body: &FunctionBody<'_>, limits: &CodeLimits) -> Result<u64, ComplexityError> {
    let mut branches = 1;
    let mut depth = 0_u64;
    for operator in body.get_operators_reader()? {
        match operator? {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::TryTable { .. } => {
                branches += 1;
                depth += 1;
                at_most(depth, limits.nested_blocks, "nested blocks")?;
            }
            Operator::End => depth = depth.saturating_sub(1),
            Operator::BrIf { .. } => branches += 1,
            Operator::BrTable { targets } => {
                branches += BRANCHES_PER_TARGET * u64::from(targets.len())
            }
            _ => {}
        }
    }
    Ok(branches)
}

/// An upper bound of the types of instances and components in other such types: each is a
/// declaration of a type (1), then its form (0x41 or 0x42).
fn nested_types(section: &[u8]) -> u64 {
    let is_nested = |bytes: &&[u8]| matches!(bytes, [1, 0x41 | 0x42]);
    section.windows(2).filter(is_nested).count() as u64
}

fn at_most(found: u64, limit: u64, what: &'static str) -> Result<(), ComplexityError> {
    if found > limit {
        Err(ComplexityError::Excess { what, found, limit })
    } else {
        Ok(())
    }
}
