// tessera export: writes a trained run as a Hugging Face directory.
#include "runtime/generate/Export.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/WeightType.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

using namespace tessera;

namespace {
struct ExportSettings {
  std::string place, output;
  std::optional<SafetensorsType> dtype;
  bool merge = false;
};
} // namespace

static Status exportPlace(const ExportSettings &settings) {
  StatusOr<RunPath> place = resolveRun(settings.place);
  if (!place.ok())
    return place.status();
  if (!std::filesystem::exists(place->program()))
    return Status::error("'{}' is not a run directory: it has no {}",
                         place->run, kProgramFile);
  auto name =
      exportRun(*place, settings.output, settings.dtype, settings.merge,
                [](std::string_view line) {
                  std::fprintf(stderr, "tessera: %.*s\n",
                               static_cast<int>(line.size()), line.data());
                });
  if (name.ok())
    std::fprintf(stderr, "tessera: %s: %s of %s\n", settings.output.c_str(),
                 name->c_str(), place->run.c_str());
  return name.status();
}

void tessera::addExportCommand(CLI::App &app, Invocation &invocation) {
  auto settings = std::make_shared<ExportSettings>();
  CLI::App *command = app.add_subcommand(
      "export", "Export a trained run as a Hugging Face directory, or its "
                "adapter in PEFT's layout");
  command
      ->add_option("RUN", settings->place,
                   "run directory, or one checkpoint of it (RUN/step-000100)")
      ->required();
  command
      ->add_option("-o,--output", settings->output,
                   "directory to create; must not exist")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--dtype", settings->dtype,
                   "type of the weights (default: the run's)")
      ->type_name("TYPE")
      ->transform(weightTypes());
  command->add_flag("--merge", settings->merge,
                    "of a run with an adapter: the whole model, with the "
                    "adapter added to its weights");
  command->callback([=, &invocation] {
    if (Status status = exportPlace(*settings); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
