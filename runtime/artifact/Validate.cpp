#include "runtime/artifact/Validate.h"

#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/artifact/Checker.h"

#include <algorithm>
#include <vector>

namespace tessera::artifact {

std::uint64_t spaceBytes(const Artifact &artifact, const Program *program,
                         Space space) {
  switch (space) {
  case Space::state:
    return artifact.state_bytes();
  case Space::arena:
    return program->arena_bytes();
  case Space::io:
    return program->io_bytes();
  }
  return 0;
}

bool isName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return c > ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\';
         });
}

bool isIdentifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && text.size() <= kMaxNameBytes && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9');
         });
}

bool isLine(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
}

std::string_view printable(std::string_view text) {
  return text.size() <= kMaxNameBytes && isLine(text) ? text : "(unprintable)";
}

namespace {

/// Reports the second of two equal names. `tables` have a name() or target().
template <typename Table, typename NameOf>
Status
checkUnique(Checker &checker,
            const flatbuffers::Vector<flatbuffers::Offset<Table>> &tables,
            std::string_view what, NameOf nameOf) {
  std::vector<const Table *> sorted(tables.begin(), tables.end());
  std::sort(sorted.begin(), sorted.end(), [&](const Table *a, const Table *b) {
    return nameOf(*a) < nameOf(*b);
  });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (nameOf(*sorted[i - 1]) == nameOf(*sorted[i]))
      return checker.fail(sorted[i], "{} '{}' is listed twice", what,
                          nameOf(*sorted[i]));
  return Status::success();
}

Status checkKernel(Checker &checker, const Kernel &kernel) {
  if (!isIdentifier(toView(kernel.name())))
    return checker.fail(&kernel, "kernel name '{}' is not a C identifier",
                        printable(toView(kernel.name())));
  for (const Access access : *kernel.access())
    if (!isKnown(access))
      return checker.fail(&kernel, "kernel '{}': unknown access {}",
                          toView(kernel.name()), static_cast<int>(access));
  if (kernel.scratch_bytes() > kMaxScratchBytes)
    return checker.fail(&kernel, "kernel '{}': {} bytes of scratch exceed {}",
                        toView(kernel.name()), kernel.scratch_bytes(),
                        kMaxScratchBytes);
  if (const auto *types = kernel.element_types()) {
    if (types->size() != kernel.access()->size())
      return checker.fail(&kernel,
                          "kernel '{}': {} element types for {} "
                          "arguments",
                          toView(kernel.name()), types->size(),
                          kernel.access()->size());
    for (const ElementType type : *types)
      if (!isKnown(type))
        return checker.fail(&kernel, "kernel '{}': unknown element type {}",
                            toView(kernel.name()), static_cast<int>(type));
  }
  if (!isLine(toView(kernel.summary())))
    return checker.fail(&kernel,
                        "kernel '{}': its summary holds control "
                        "characters",
                        toView(kernel.name()));
  return Status::success();
}

Status checkCode(Checker &checker, const CodeObject &code) {
  if (!isName(toView(code.target())))
    return checker.fail(&code, "code object: its target is empty, too long or "
                               "not plain ASCII");
  for (const flatbuffers::String *feature : *code.features())
    if (!isName(toView(feature)))
      return checker.fail(&code,
                          "code object '{}': a feature's name is empty, "
                          "too long or not plain ASCII",
                          toView(code.target()));
  if (code.elf()->size() == 0)
    return checker.fail(&code, "code object '{}' is empty",
                        toView(code.target()));
  return Status::success();
}

Status checkTexts(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  for (const auto &[text, what] :
       {std::pair(artifact.compiler_version(), "compiler_version"),
        std::pair(artifact.program_hash(), "program_hash"),
        std::pair(artifact.rebuild_command(), "rebuild_command")})
    if (!isLine(toView(text)))
      return checker.fail(&artifact, "{} holds control characters", what);
  return Status::success();
}

Status checkTables(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  for (const Kernel *kernel : *artifact.kernels())
    TESSERA_RETURN_IF_ERROR(checkKernel(checker, *kernel));
  TESSERA_RETURN_IF_ERROR(
      checkUnique(checker, *artifact.kernels(), "kernel",
                  [](const Kernel &k) { return toView(k.name()); }));
  for (const CodeObject *code : *artifact.code())
    TESSERA_RETURN_IF_ERROR(checkCode(checker, *code));
  TESSERA_RETURN_IF_ERROR(
      checkUnique(checker, *artifact.code(), "code object",
                  [](const CodeObject &c) { return toView(c.target()); }));
  if (artifact.kernels()->size() != 0 && artifact.code()->size() == 0)
    return checker.fail(&artifact, "{} kernels, but no code object",
                        artifact.kernels()->size());
  return Status::success();
}

Status checkArtifact(Checker &checker) {
  const Artifact &artifact = checker.artifact;
  TESSERA_RETURN_IF_ERROR(checkTexts(checker));
  if (artifact.schema_version() != kSchemaVersion)
    return checker.fail(&artifact,
                        "schema version {}, but this runtime reads {} "
                        "(the artifact is of compiler {})",
                        artifact.schema_version(), kSchemaVersion,
                        toView(artifact.compiler_version()));
  if (artifact.state_bytes() > kMaxSpaceBytes)
    return checker.fail(&artifact, "a state of {} bytes exceeds {}",
                        artifact.state_bytes(), kMaxSpaceBytes);
  TESSERA_RETURN_IF_ERROR(validateTensors(
      checker, {artifact.state(), "state tensor", Space::state,
                artifact.state_bytes(), [](Role role) {
                  return role == Role::parameter || role == Role::optimizer ||
                         role == Role::counter;
                }}));
  TESSERA_RETURN_IF_ERROR(checkTables(checker));
  for (const Program *program : *artifact.programs()) {
    if (!isIdentifier(toView(program->name())))
      return checker.fail(program, "program name '{}' is not a C identifier",
                          printable(toView(program->name())));
    TESSERA_RETURN_WITHIN(validateProgram(checker, *program), "program '{}'",
                          toView(program->name()));
  }
  return checkUnique(checker, *artifact.programs(), "program",
                     [](const Program &p) { return toView(p.name()); });
}

} // namespace

Status validate(const Artifact &artifact, const BufferPlace &place) {
  Checker checker(artifact);
  Status status = checkArtifact(checker);
  if (status.ok())
    return status;
  return Status::error(
      "{}: offset {:#x}: {}; rebuild it: {}", place.file,
      place.fileOffset + static_cast<std::uint64_t>(checker.at - place.begin),
      status.message(), printable(toView(artifact.rebuild_command())));
}

} // namespace tessera::artifact
