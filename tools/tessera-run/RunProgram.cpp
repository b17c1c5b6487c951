#include "tools/tessera-run/RunProgram.h"
#include "runtime/support/CommandLine.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/RunRecipe.h"
#include "runtime/train/SessionModel.h"
#include "runtime/weights/ImportWeights.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

namespace tessera {
namespace {

/// One output over all runs, kept in memory until it is written.
constexpr uint64_t kMostOutputBytes = uint64_t(1) << 36;

std::string describe(SafetensorsType type, std::span<const uint64_t> shape) {
  return fmt::format("{}[{}]", safetensorsName(type), fmt::join(shape, ", "));
}

/// The file entry that corresponds to a tensor of the session.
struct FileForm {
  SafetensorsType type;
  std::vector<uint64_t> shape;
  std::string describe() const { return tessera::describe(type, shape); }
};
StatusOr<FileForm> fileForm(const hal::TensorInfo &tensor) {
  std::optional<SafetensorsType> type = safetensorsTypeOf(tensor.type);
  if (!type)
    return Status::error("'{}' has a type that safetensors cannot store",
                         tensor.name);
  return FileForm{*type, {tensor.shape.begin(), tensor.shape.end()}};
}

/// A tensor to be written to a file.
struct Kept {
  std::string name;
  FileForm form;
  std::vector<std::byte> bytes;
};

class FileSink : public SafetensorsSink {
public:
  explicit FileSink(DurableFile &file) : file(file) {}
  Status write(std::span<const std::byte> bytes) override {
    return file.write(bytes);
  }

private:
  DurableFile &file;
};

/// Writes to a temporary name in the same directory and renames it, so that
/// readers never see a partial file.
Status writeFile(const std::string &path, const std::vector<Kept> &kept) {
  FileOperations &files = systemFiles();
  std::vector<SafetensorsTensor> tensors;
  for (const Kept &each : kept)
    tensors.push_back(
        {each.name, each.form.type, each.form.shape, each.bytes.size(),
         [&each](SafetensorsSink &out) { return out.write(each.bytes); }});
  std::string partial = path + ".tmp";
  TESSERA_RETURN_IF_ERROR(files.removeTree(partial));
  auto fill = [&]() -> Status {
    StatusOr<DurableFile> file = DurableFile::create(files, partial);
    if (!file.ok())
      return file.status();
    FileSink sink(*file);
    TESSERA_RETURN_IF_ERROR(writeSafetensors(sink, std::move(tensors), {}));
    TESSERA_RETURN_IF_ERROR(file->finish());
    return files.rename(partial, path);
  };
  Status status = fill();
  if (!status.ok())
    (void)files.removeTree(partial); // report the first error
  return status;
}

/// One invocation; the members are set in the order of run().
class ProgramRun {
public:
  explicit ProgramRun(const RunProgramOptions &options) : options(options) {}
  Status run();

private:
  struct Input {
    const hal::TensorInfo *tensor;
    const SafetensorsEntry *entry;
    uint64_t stride; // bytes between the values of consecutive runs
  };
  Status open();
  Status fillState();
  Status writeHyper(const std::string &recipeText);
  Status readStateFile(const std::string &path);
  Status bindInputs();
  Status bindInput(const hal::TensorInfo &tensor);
  Status bindOutputs();
  Status runOnce(uint64_t index);
  StatusOr<std::vector<Kept>> wholeState() const;

  const RunProgramOptions &options;
  std::unique_ptr<SessionModel> model;
  hal::Session *session = nullptr; // the model's
  std::optional<SafetensorsFile> file;
  std::vector<Input> inputs;
  std::vector<std::byte> value; // of the largest input
  std::vector<Kept> outputs;
};

Status ProgramRun::open() {
  StatusOr<ArtifactReader> reader = ArtifactReader::open(options.artifact);
  if (!reader.ok())
    return reader.status();
  if (options.init && !reader->hasProgram("init"))
    return Status::error("'{}' has no program 'init'; omit --init",
                         options.artifact);
  hal::SessionOptions wanted;
  wanted.device = options.device;
  wanted.deviceOptions.threads = options.threads;
  wanted.programs = {options.program};
  wanted.recordOptions.checkFinite = options.checkFinite;
  if (reader->hasProgram("init") && options.program != "init")
    wanted.programs.push_back("init");
  auto opened = SessionModel::open(*reader, wanted);
  if (!opened.ok())
    return opened.status();
  model = opened.take();
  session = &model->get();
  return Status::success();
}

/// A recipe's hyperparameters, as --set changes them.
Status ProgramRun::writeHyper(const std::string &recipeText) {
  const StateTensor *tensor = model->find(kHyperTensor);
  if (!tensor && options.sets.empty())
    return Status::success();
  StatusOr<RunRecipe> recipe = parseRunRecipe(recipeText);
  if (!recipe.ok())
    return recipe.status();
  for (const std::string &each : options.sets)
    TESSERA_RETURN_IF_ERROR(
        setRecipeKey(*recipe, each, model->facts().rebuildCommand));
  TESSERA_RETURN_IF_ERROR(recipe::checkTogether(recipe->values));
  const std::array<float, kHyperSlots> hyper = recipe->hyper();
  auto bytes = std::as_bytes(std::span(hyper));
  if (!tensor || tensor->size != bytes.size())
    return Status::error(
        "'{}' has no state tensor '{}' of {} bytes, so --set has no effect",
        options.artifact, kHyperTensor, bytes.size());
  return model->writeState(*tensor, 0, bytes);
}

Status ProgramRun::readStateFile(const std::string &path) {
  StatusOr<SafetensorsFile> source = SafetensorsFile::open(path);
  if (!source.ok())
    return source.status();
  std::vector<std::byte> bytes;
  for (const SafetensorsEntry &entry : source->header().tensors) {
    const hal::TensorInfo *tensor = session->findState(entry.name);
    if (!tensor)
      return Status::error("'{}' in '{}' is not a tensor of the state; "
                           "--weights expects Hugging Face names",
                           entry.name, path);
    StatusOr<FileForm> form = fileForm(*tensor);
    if (!form.ok())
      return form.status();
    if (form->type != entry.type || form->shape != entry.shape)
      return Status::error("'{}' in '{}' is {}, but the state's is {}",
                           entry.name, path, describe(entry.type, entry.shape),
                           form->describe());
    bytes.resize(tensor->bytes);
    TESSERA_RETURN_IF_ERROR(source->read(entry, 0, bytes));
    TESSERA_RETURN_IF_ERROR(session->writeState(entry.name, bytes));
  }
  return Status::success();
}

Status ProgramRun::fillState() {
  if (options.init)
    TESSERA_RETURN_IF_ERROR(model->initialize(*options.init));
  TESSERA_RETURN_IF_ERROR(writeHyper(model->facts().recipe));
  if (!options.weights.empty())
    if (auto report = importWeights(options.weights, *model); !report.ok())
      return report.status();
  if (!options.checkpoint.empty()) {
    auto manifest = verifyCheckpoint(options.checkpoint);
    if (!manifest.ok())
      return manifest.status();
    TESSERA_RETURN_IF_ERROR(
        loadCheckpoint(options.checkpoint, *manifest, *model));
    TESSERA_RETURN_IF_ERROR(writeHyper(manifest->recipe));
  }
  for (const std::string &path : options.states)
    TESSERA_RETURN_IF_ERROR(readStateFile(path));
  return Status::success();
}

Status ProgramRun::bindInput(const hal::TensorInfo &tensor) {
  StatusOr<FileForm> form = fileForm(tensor);
  if (!form.ok())
    return form.status();
  const SafetensorsEntry *entry = file->header().find(tensor.name);
  if (!entry)
    return Status::error("'{}' lacks the input '{}' of program '{}': {}",
                         options.inputs, tensor.name, options.program,
                         form->describe());
  std::vector<uint64_t> series = form->shape;
  series.insert(series.begin(), options.runs);
  bool isSeries = entry->shape == series;
  if (entry->type != form->type || (entry->shape != form->shape && !isSeries))
    return Status::error(
        "'{}' in '{}' is {}, but the input of program '{}' is {}", tensor.name,
        options.inputs, describe(entry->type, entry->shape), options.program,
        form->describe());
  inputs.push_back({&tensor, entry, isSeries ? tensor.bytes : 0});
  value.resize(std::max<std::size_t>(value.size(), tensor.bytes));
  return Status::success();
}

Status ProgramRun::bindInputs() {
  std::span<const hal::TensorInfo> wanted = session->inputs(options.program);
  if (options.inputs.empty()) {
    if (!wanted.empty())
      return Status::error("program '{}' needs --inputs FILE with '{}'",
                           options.program, wanted.front().name);
  } else {
    StatusOr<SafetensorsFile> opened = SafetensorsFile::open(options.inputs);
    if (!opened.ok())
      return opened.status();
    file.emplace(opened.take());
    for (const hal::TensorInfo &tensor : wanted)
      TESSERA_RETURN_IF_ERROR(bindInput(tensor));
    for (const SafetensorsEntry &entry : file->header().tensors)
      if (std::none_of(wanted.begin(), wanted.end(), [&](const auto &tensor) {
            return tensor.name == entry.name;
          }))
        return Status::error("'{}' in '{}' is not an input of program '{}'",
                             entry.name, options.inputs, options.program);
  }
  return Status::success();
}

/// Without --outputs no output is kept.
Status ProgramRun::bindOutputs() {
  if (options.outputs.empty())
    return Status::success();
  for (const hal::TensorInfo &tensor : session->outputs(options.program)) {
    StatusOr<FileForm> form = fileForm(tensor);
    if (!form.ok())
      return form.status();
    if (tensor.bytes > kMostOutputBytes / options.runs)
      return Status::error(
          "output '{}' of {} runs takes more than {} GiB; lower --runs",
          tensor.name, options.runs, kMostOutputBytes >> 30);
    if (options.runs > 1)
      form->shape.insert(form->shape.begin(), options.runs);
    outputs.push_back({std::string(tensor.name), form.take(),
                       std::vector<std::byte>(tensor.bytes * options.runs)});
  }
  return Status::success();
}

Status ProgramRun::runOnce(uint64_t index) {
  for (const Input &input : inputs) {
    std::span<std::byte> bytes(value.data(), input.tensor->bytes);
    TESSERA_RETURN_IF_ERROR(
        file->read(*input.entry, index * input.stride, bytes));
    TESSERA_RETURN_IF_ERROR(
        session->writeInput(options.program, input.tensor->name,
                            std::span<const std::byte>(bytes)));
  }
  TESSERA_RETURN_IF_ERROR(session->run(options.program));
  for (Kept &output : outputs) {
    uint64_t size = output.bytes.size() / options.runs;
    TESSERA_RETURN_IF_ERROR(session->readOutput(
        options.program, output.name,
        std::span(output.bytes).subspan(index * size, size)));
  }
  return Status::success();
}

StatusOr<std::vector<Kept>> ProgramRun::wholeState() const {
  std::vector<Kept> kept;
  for (const hal::TensorInfo &tensor : session->state()) {
    StatusOr<FileForm> form = fileForm(tensor);
    if (!form.ok())
      return form.status();
    kept.push_back({std::string(tensor.name), form.take(),
                    std::vector<std::byte>(tensor.bytes)});
    TESSERA_RETURN_IF_ERROR(session->readState(tensor.name, kept.back().bytes));
  }
  return kept;
}

Status ProgramRun::run() {
  TESSERA_RETURN_IF_ERROR(open());
  TESSERA_RETURN_IF_ERROR(fillState());
  TESSERA_RETURN_IF_ERROR(bindInputs());
  TESSERA_RETURN_IF_ERROR(bindOutputs());
  for (uint64_t index = 0; index < options.runs; ++index)
    TESSERA_RETURN_IF_ERROR(runOnce(index));
  if (!options.outputs.empty())
    TESSERA_RETURN_IF_ERROR(writeFile(options.outputs, outputs));
  if (options.dumpState.empty())
    return Status::success();
  auto state = wholeState();
  return state.ok() ? writeFile(options.dumpState, *state) : state.status();
}

void addOptions(CLI::App &app, RunProgramOptions &options) {
  app.add_option("--program", options.program,
                 "program to run: logits, train_step, eval_step, init")
      ->required();
  app.add_option("--init", options.init,
                 "initialize the state by the program init with this seed "
                 "(default: zeros)")
      ->type_name("SEED");
  app.add_option("--weights", options.weights,
                 "load Hugging Face safetensors: a file or a directory")
      ->type_name("PATH");
  app.add_option("--checkpoint", options.checkpoint,
                 "load a checkpoint, such as run/step-000100")
      ->type_name("DIR");
  app.add_option(
         "--set", options.sets,
         "change a hyperparameter, such as optimizer.lr=3e-4; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--state", options.states,
                 "load tensors by their names in the state, such as a file of "
                 "--dump-state; repeatable")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--inputs", options.inputs,
                 "read the program's inputs from safetensors")
      ->type_name("FILE");
  app.add_option("--outputs", options.outputs,
                 "write the program's outputs as safetensors")
      ->type_name("FILE");
  app.add_option("--dump-state", options.dumpState,
                 "write the state after the last run as safetensors")
      ->type_name("FILE");
  app.add_option("--runs", options.runs,
                 "number of runs; outputs get it as their leading dimension, "
                 "inputs may have it")
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 32))
      ->capture_default_str();
  app.add_flag(
      "--check-finite", options.checkFinite,
      "stop at the first kernel whose outputs contain NaN or infinity; slow");
  app.add_option("--device", options.device,
                 "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "threads that run kernels (default: all processors)")
      ->check(CLI::Range(0, 1024));
}

} // namespace

Status runProgram(const RunProgramOptions &options) {
  return ProgramRun(options).run();
}

bool asksForProgram(int argc, const char *const *argv) {
  return std::any_of(argv, argv + argc, [](std::string_view argument) {
    return argument == "--program" || argument.starts_with("--program=");
  });
}

int runProgramMain(int argc, const char *const *argv,
                   const std::string &artifactPath) {
  RunProgramOptions options;
  options.artifact = artifactPath;
  CLI::App app("Runs one program of an artifact on tensors from files.");
  app.failure_message([](const CLI::App *app, const CLI::Error &error) {
    return fmt::format("error: {}; see --help\n",
                       commandLineError(*app, error));
  });
  addOptions(app, options);
  try {
    parseCommandLine(app, argc, argv);
  } catch (const CLI::ParseError &error) {
    std::ostringstream out, errors;
    int code = app.exit(error, out, errors);
    std::fputs((out.str() + errors.str()).c_str(), code ? stderr : stdout);
    return code == 0 ? 0 : 2;
  }
  Status status = runProgram(options);
  if (!status.ok())
    fmt::print(stderr, "error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}

} // namespace tessera
