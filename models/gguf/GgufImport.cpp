#include "models/gguf/GgufImport.h"
#include "models/gguf/GgufParts.h"
#include "runtime/data/NewDirectory.h"

#include <filesystem>

namespace tessera::models {
namespace {

std::string_view dtypeName(SafetensorsType type) {
  return type == SafetensorsType::f32   ? "float32"
         : type == SafetensorsType::f16 ? "float16"
                                        : "bfloat16";
}

Status write(const std::string &folder, GgufParts &parts,
             SafetensorsType type) {
  for (const auto &[name, text] : parts.files(dtypeName(type)))
    TESSERA_RETURN_IF_ERROR(writeNewFile(folder + "/" + name, text));
  std::vector<SafetensorsTensor> tensors;
  for (const GgufParameter &parameter : parts.weights.parameters)
    tensors.push_back(ggufTensor(parameter, type));
  return writeNewSafetensors(folder + "/model.safetensors", std::move(tensors));
}

} // namespace

StatusOr<std::string> importGguf(const std::string &path,
                                 const std::string &directory,
                                 SafetensorsType type) {
  std::error_code code;
  if (std::filesystem::exists(directory, code))
    return Status::error("'{}' exists already; choose another directory",
                         directory);
  auto file = GgufFile::open(path);
  if (!file.ok())
    return file.status();
  auto parts = readGguf(*file);
  if (!parts.ok())
    return parts.status();
  std::string types;
  for (const auto &[name, count] : parts->weights.types)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", count, name);
  std::string line = fmt::format(
      "{}; tensors: {}, written as {}; tokenizer: {}, {} tokens; {}",
      describe(parts->spec), types, dtypeName(type), parts->tokenizer.shape,
      parts->tokenizer.size,
      parts->tokenizer.chatTemplate.empty() ? "no chat template"
                                            : "with a chat template");
  TESSERA_RETURN_IF_ERROR(
      makeNewDirectory(directory, [&](const std::string &folder) {
        return write(folder, *parts, type);
      }));
  return line;
}

} // namespace tessera::models
