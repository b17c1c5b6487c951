// The machine code of an artifact's kernels for one kind of GPU.
#pragma once
#include "compiler/target/cuda/sass/Sass.h"
#include "runtime/artifact/Artifact_generated.h"

namespace tessera::sass {

class MachineCode {
public:
  /// `code` must live as long. An error without nvdisasm.
  static StatusOr<MachineCode> open(const artifact::DeviceCode &code);

  /// A kernel's function, by the kernel's number; it lives as long as this
  /// object. Errors: no cubin holds it; nvdisasm fails or prints what is not
  /// understood.
  StatusOr<const Function *> find(std::uint32_t kernel);
  /// What nvdisasm prints of it.
  StatusOr<std::string> text(std::uint32_t kernel) const;

private:
  explicit MachineCode(const artifact::DeviceCode &code) : code(code) {}
  StatusOr<const artifact::CodeObject *> objectOf(std::uint32_t kernel) const;
  StatusOr<std::string> disassemble(const artifact::CodeObject &object) const;
  std::string_view nameOf(std::uint32_t kernel) const;

  const artifact::DeviceCode &code;
  std::string disassembler;
  std::map<const artifact::CodeObject *, std::vector<Function>> objects;
};

} // namespace tessera::sass
