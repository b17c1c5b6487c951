// tessera import: converts a GGUF file to a Hugging Face directory.
#include "models/gguf/GgufImport.h"
#include "runtime/generate/ModelDirectory.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/WeightType.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

using namespace tessera;

namespace {
struct ImportSettings {
  std::string file, output;
  SafetensorsType dtype = SafetensorsType::bf16;
};
} // namespace

// Models that generate, chat and serve read directly need no import.
static Status checkIsFile(const std::string &place) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (!fs::is_regular_file(place, code) && findModelDirectory(place))
    return Status::error("'{}' is a Hugging Face model, which needs no import: "
                         "tessera generate {}",
                         place, place);
  if (fs::is_directory(place, code))
    return Status::error(
        "'{}' is a directory; import expects one GGUF file, such as {}", place,
        (fs::path(place) / "model.gguf").string());
  return Status::success(); // the reader reports other errors
}

void tessera::addImportCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<ImportSettings>();
  CLI::App *command =
      app.add_subcommand("import", "Convert a GGUF file to a Hugging Face "
                                   "directory, dequantized; generate, chat "
                                   "and serve read the file itself too");
  command->add_option("FILE", settings->file, "model.gguf")->required();
  command
      ->add_option("-o,--output", settings->output,
                   "directory to create; must not exist")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--dtype", settings->dtype,
                   "type of the weights; quantized ones are dequantized to it")
      ->type_name("TYPE")
      ->transform(weightTypes())
      ->default_str("bf16");
  command->callback([=, &invocation] {
    if (Status status = checkIsFile(settings->file); !status.ok())
      return invocation.fail(status.message().c_str());
    auto line =
        models::importGguf(settings->file, settings->output, settings->dtype);
    if (!line.ok())
      return invocation.fail(line.message().c_str());
    std::fprintf(stderr, "tessera: %s: %s\n", settings->output.c_str(),
                 line->c_str());
  });
}
