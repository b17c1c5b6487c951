#include "compiler/target/cuda/sass/MachineCode.h"

#include <algorithm>

#include "compiler/target/cuda/sass/Disassembler.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/support/Text.h"

namespace tessera::sass {

using artifact::toView;

StatusOr<MachineCode> MachineCode::open(const artifact::DeviceCode &code) {
  MachineCode result(code);
  result.disassembler = findDisassembler();
  if (result.disassembler.empty())
    return Status::error("{}", kHowToGetDisassembler);
  return result;
}

std::string_view MachineCode::nameOf(std::uint32_t kernel) const {
  return toView(code.kernels()->Get(kernel)->name());
}

StatusOr<const artifact::CodeObject *>
MachineCode::objectOf(std::uint32_t kernel) const {
  for (const artifact::CodeObject *object : *code.code()) {
    if (toView(object->target()) != toView(code.device()))
      continue;
    const auto *kernels = object->kernels();
    if (!kernels ||
        std::find(kernels->begin(), kernels->end(), kernel) != kernels->end())
      return object;
  }
  return Status::error("no cubin of the artifact has kernel {} for {}; compile "
                       "it where nvcc is installed",
                       quote(nameOf(kernel)), toView(code.device()));
}

StatusOr<std::string>
MachineCode::disassemble(const artifact::CodeObject &object) const {
  return sass::disassemble(
      disassembler, {reinterpret_cast<const char *>(object.elf()->data()),
                     object.elf()->size()});
}

StatusOr<const Function *> MachineCode::find(std::uint32_t kernel) {
  auto object = objectOf(kernel);
  if (!object.ok())
    return object.status();
  auto known = objects.find(*object);
  if (known == objects.end()) {
    auto text = disassemble(**object);
    if (!text.ok())
      return text.status();
    auto functions = parse(*text);
    if (!functions.ok())
      return functions.status();
    known = objects.emplace(*object, functions.take()).first;
  }
  for (const Function &function : known->second)
    if (function.name == nameOf(kernel))
      return &function;
  return Status::error("the cubin has no code of kernel {}",
                       quote(nameOf(kernel)));
}

StatusOr<std::string> MachineCode::text(std::uint32_t kernel) const {
  auto object = objectOf(kernel);
  if (!object.ok())
    return object.status();
  auto all = disassemble(**object);
  if (!all.ok())
    return all;
  const std::size_t begin =
      all->find(fmt::format(".section\t.text.tessera_{},", nameOf(kernel)));
  if (begin == all->npos)
    return Status::error("the cubin has no code of kernel {}",
                         quote(nameOf(kernel)));
  const std::size_t end = all->find("\n//---", begin);
  return all->substr(begin, end == all->npos ? end : end + 1 - begin);
}

} // namespace tessera::sass
