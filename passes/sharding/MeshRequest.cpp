#include "passes/sharding/MeshRequest.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace tessera;

// The slowest-varying first: neighbors along the last axis communicate most.
// The ranks of one replica are neighbors, so that only sums of gradients cross
// slow links.
static constexpr llvm::StringLiteral kAxes[] = {
    "pipe", "replicate", "data", "expert", "context", "tensor"};
static constexpr int64_t kMostDevices = int64_t{1} << 20;

static llvm::Error makeError(llvm::StringRef text, const llvm::Twine &what) {
  return llvm::createStringError("--mesh " + text + ": " + what);
}

// A schedule's name, or the contents of a file.
static llvm::Error readSchedule(llvm::StringRef text, llvm::StringRef value,
                                std::string &schedule) {
  if (!schedule.empty() || value.empty())
    return makeError(text, value.empty()
                               ? "schedule expects a name, such as 1f1b, "
                                 "or a FILE.csv"
                               : "duplicate option 'schedule'");
  schedule = value.str();
  if (!value.ends_with(".csv"))
    return llvm::Error::success();
  auto file = llvm::MemoryBuffer::getFile(value);
  if (!file)
    return makeError(text,
                     "cannot read " + value + ": " + file.getError().message());
  schedule = (*file)->getBuffer().str();
  return llvm::Error::success();
}

static llvm::Error
readCollectiveMatmul(llvm::StringRef text, llvm::StringRef value,
                     std::optional<CollectiveMatmulMode> &collectiveMatmul) {
  if (collectiveMatmul)
    return makeError(text, "duplicate option 'collective_matmul'");
  collectiveMatmul =
      llvm::StringSwitch<std::optional<CollectiveMatmulMode>>(value)
          .Case("auto", CollectiveMatmulMode::Auto)
          .Case("on", CollectiveMatmulMode::On)
          .Case("off", CollectiveMatmulMode::Off)
          .Default(std::nullopt);
  if (!collectiveMatmul)
    return makeError(text, "collective_matmul must be auto, on or off, got '" +
                               value + "'");
  return llvm::Error::success();
}

// Layers of experts have an axis as other layers have it, or not at all.
static llvm::Error readExpertDegree(llvm::StringRef text, llvm::StringRef axis,
                                    const llvm::StringMap<int64_t> &values,
                                    int64_t &degree) {
  std::string option = ("expert_" + axis).str();
  auto given = values.find(option);
  if (given == values.end())
    return llvm::Error::success();
  auto size = values.find(axis);
  if (size == values.end())
    return makeError(text,
                     option + " requires the axis " + axis + "; give its size");
  degree = given->second;
  if (degree != 1 && degree != size->second)
    return makeError(text, option + " must be 1 or the size of " + axis + ", " +
                               llvm::Twine(size->second) + ", got " +
                               llvm::Twine(degree));
  return llvm::Error::success();
}

namespace {
/// What a text says, before any of it is checked against the rest.
struct Options {
  llvm::StringMap<int64_t> numbers; ///< sizes of axes, zero, chunks, …
  std::string schedule;
  std::optional<CollectiveMatmulMode> collectiveMatmul;
  bool has(llvm::StringRef name) const { return numbers.count(name); }
};
} // namespace

static llvm::Error readNumber(llvm::StringRef text, llvm::StringRef part,
                              llvm::StringMap<int64_t> &numbers) {
  auto [name, number] = part.split('=');
  int64_t value = 0;
  if (number.getAsInteger(10, value))
    return makeError(text, "'" + part +
                               "' is not of the form AXIS=SIZE, such as "
                               "data=2");
  bool zero = name == "zero";
  if (!zero && name != "chunks" && name != "expert_tensor" &&
      name != "expert_context" && !llvm::is_contained(kAxes, name))
    return makeError(text,
                     "unknown axis '" + name +
                         "'; known axes: data, replicate, expert, context, "
                         "tensor, pipe; known options: zero, schedule, "
                         "chunks, collective_matmul, expert_tensor, "
                         "expert_context");
  if (zero ? value < 0 || value > 3 : value < 1 || value > kMostDevices)
    return makeError(text, zero ? "zero must be 0, 1, 2 or 3"
                                : "an axis has 1 to 1048576 devices, got '" +
                                      part + "'");
  if (!numbers.try_emplace(name, value).second)
    return makeError(text, "duplicate axis '" + name + "'");
  return llvm::Error::success();
}

static llvm::Error readOption(llvm::StringRef text, llvm::StringRef part,
                              Options &options) {
  auto [name, value] = part.split('=');
  if (name == "schedule")
    return readSchedule(text, value, options.schedule);
  if (name == "collective_matmul")
    return readCollectiveMatmul(text, value, options.collectiveMatmul);
  if (name == "async")
    return makeError(text, "'async' was renamed to 'collective_matmul'");
  return readNumber(text, part, options.numbers);
}

static llvm::Error setAxes(llvm::StringRef text, const Options &options,
                           MeshRequest &request) {
  for (llvm::StringRef axis : kAxes) {
    auto size = options.numbers.find(axis);
    if (size == options.numbers.end())
      continue;
    if (llvm::MulOverflow(request.devices, size->second, request.devices) ||
        request.devices > kMostDevices)
      return makeError(text, "more than 1048576 devices");
    request.axes += (request.axes.empty() ? "" : ",") + axis.str() + "=" +
                    std::to_string(size->second);
  }
  return llvm::Error::success();
}

// Options that have a meaning on some axes alone.
static llvm::Error checkAxesOf(llvm::StringRef text, const Options &options) {
  auto zero = options.numbers.find("zero");
  if (zero != options.numbers.end() && zero->second > 0 &&
      !options.has("data") && !options.has("expert") && !options.has("context"))
    return makeError(text, "zero shards state over data, expert and context; "
                           "give the size of one of these axes");
  if (options.collectiveMatmul && !options.has("tensor"))
    return makeError(text,
                     "collective_matmul requires the axis tensor; give its "
                     "size");
  return llvm::Error::success();
}

static llvm::Error setPipeline(llvm::StringRef text, const Options &options,
                               MeshRequest &request) {
  request.schedule = options.schedule;
  request.chunks = options.numbers.lookup("chunks");
  if (!options.has("pipe") && (!request.schedule.empty() || request.chunks))
    return makeError(text, "schedule and chunks require the axis pipe; give "
                           "its size");
  if (options.has("pipe") && request.schedule.empty())
    request.schedule = "1f1b";
  return llvm::Error::success();
}

llvm::Expected<MeshRequest> tessera::parseMeshRequest(llvm::StringRef text,
                                                      int64_t world) {
  MeshRequest request;
  if (text.empty() && world <= 1)
    return request;
  if (text.empty())
    return makeError("data=" + std::to_string(world),
                     "give the axes of " + llvm::Twine(world) + " devices");
  Options options;
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  for (llvm::StringRef part : parts)
    if (llvm::Error error = readOption(text, part, options))
      return std::move(error);
  if (llvm::Error error = setAxes(text, options, request))
    return std::move(error);
  if (world != 0 && world != request.devices)
    return makeError(text, "has " + llvm::Twine(request.devices) +
                               " devices and --world says " +
                               llvm::Twine(world));
  if (llvm::Error error = checkAxesOf(text, options))
    return std::move(error);
  for (auto [axis, degree] : {std::pair("tensor", &request.expertTensor),
                              {"context", &request.expertContext}})
    if (llvm::Error error =
            readExpertDegree(text, axis, options.numbers, *degree))
      return std::move(error);
  request.zero = options.numbers.lookup("zero");
  request.collectiveMatmul =
      options.collectiveMatmul.value_or(CollectiveMatmulMode::Auto);
  if (llvm::Error error = setPipeline(text, options, request))
    return std::move(error);
  return request;
}
