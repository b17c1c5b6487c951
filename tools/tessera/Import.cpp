// tessera import: a GGUF file as a Hugging Face directory.
#include "models/gguf/GgufImport.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/WeightType.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

using namespace tessera;

namespace {
struct ImportSettings {
  std::string file, output;
  SafetensorsType dtype = SafetensorsType::bf16;
};
} // namespace

void tessera::addImportCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<ImportSettings>();
  CLI::App *command = app.add_subcommand(
      "import", "Turn a GGUF file into a Hugging Face directory, which "
                "generate, chat and serve read");
  command->add_option("FILE", settings->file, "model.gguf")->required();
  command
      ->add_option("-o,--output", settings->output,
                   "the directory, which must not be there yet")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--dtype", settings->dtype,
                   "of the weights; quantized ones are unpacked")
      ->type_name("TYPE")
      ->transform(weightTypes())
      ->default_str("bf16");
  command->callback([=, &invocation] {
    auto line =
        models::importGguf(settings->file, settings->output, settings->dtype);
    if (!line.ok())
      return invocation.fail(line.message().c_str());
    std::fprintf(stderr, "tessera: %s: %s\n", settings->output.c_str(),
                 line->c_str());
  });
}
