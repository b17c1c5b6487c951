#include "compiler/interpreter/TensorFiles.h"
#include "compiler/interpreter/Interpreter.h"
#include "dialects/graph/GraphOps.h"
#include "runtime/data/Safetensors.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

using namespace mlir;
using namespace tessera;
using namespace tessera::interpreter;

static llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(message);
}

//===--- names ----------------------------------------------------------===//

// The first of `keys` that `attrs` has as a string, else prefix + index.
static std::string nameOf(DictionaryAttr attrs, ArrayRef<StringRef> keys,
                          StringRef prefix, unsigned index) {
  if (attrs)
    for (StringRef key : keys)
      if (auto name = attrs.getAs<StringAttr>(key))
        return name.str();
  return (prefix + llvm::Twine(index)).str();
}

std::vector<std::string>
tessera::interpreter::argumentNames(func::FuncOp function) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    names.push_back(nameOf(function.getArgAttrDict(i),
                           {graph::kStateAttr, graph::kInputAttr}, "arg", i));
  return names;
}

std::vector<std::string>
tessera::interpreter::resultNames(func::FuncOp function) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    names.push_back(nameOf(function.getResultAttrDict(i),
                           {graph::kStateAttr, graph::kOutputAttr}, "result",
                           i));
  return names;
}

//===--- reading --------------------------------------------------------===//

template <typename T> static double load(const std::byte *at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<double>(value);
}

template <const llvm::fltSemantics &(*semantics)()>
static double loadHalf(const std::byte *at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return llvm::APFloat(semantics(), llvm::APInt(16, bits)).convertToDouble();
}

using Load = double (*)(const std::byte *);

// How one element of a file type becomes a double; null for types without a
// meaning here.
static Load loaderOf(SafetensorsType type) {
  static const std::pair<SafetensorsType, Load> loaders[] = {
      {SafetensorsType::f64, load<double>},
      {SafetensorsType::f32, load<float>},
      {SafetensorsType::bf16, loadHalf<llvm::APFloat::BFloat>},
      {SafetensorsType::f16, loadHalf<llvm::APFloat::IEEEhalf>},
      {SafetensorsType::i64, load<int64_t>},
      {SafetensorsType::i32, load<int32_t>},
      {SafetensorsType::i16, load<int16_t>},
      {SafetensorsType::i8, load<int8_t>},
      {SafetensorsType::u8, load<uint8_t>},
      {SafetensorsType::boolean, load<uint8_t>}};
  for (auto [known, loader] : loaders)
    if (known == type)
      return loader;
  return nullptr;
}

static llvm::Expected<Tensor> readTensor(const SafetensorsFile &file,
                                         const SafetensorsEntry &entry,
                                         RankedTensorType type) {
  auto where = [&] { return file.path() + ": tensor '" + entry.name + "' "; };
  bool fits = static_cast<int64_t>(entry.shape.size()) == type.getRank();
  for (int64_t dim = 0; fits && dim < type.getRank(); ++dim)
    fits = entry.shape[dim] == static_cast<uint64_t>(type.getDimSize(dim));
  if (!fits) {
    std::string text;
    llvm::raw_string_ostream(text) << type;
    return failure(where() + "has another shape than its argument, " + text);
  }
  Load loader = loaderOf(entry.type);
  if (!loader)
    return failure(where() + "is of type " +
                   std::string(safetensorsName(entry.type)) +
                   ", which the reference does not compute with");
  std::vector<std::byte> bytes(entry.end - entry.begin);
  if (Status status = file.read(entry, 0, bytes); !status.ok())
    return failure(status.message());
  Tensor tensor(type.getShape());
  size_t width = safetensorsBits(entry.type) / 8;
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.data[i] = loader(bytes.data() + i * width);
  return tensor;
}

llvm::Expected<Tensors>
tessera::interpreter::readInputs(func::FuncOp function,
                                 const std::string &path) {
  StatusOr<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file.ok())
    return failure(file.message());
  Tensors inputs;
  for (auto [name, type] :
       llvm::zip_equal(argumentNames(function), function.getArgumentTypes())) {
    const SafetensorsEntry *entry = file->header().find(name);
    if (!entry)
      return failure(path + ": has no tensor '" + name + "', an argument of @" +
                     function.getName());
    if (!isInterpretable(type))
      return failure("argument '" + name + "' of @" + function.getName() +
                     " is not a tensor of static shape, or is too large for "
                     "the interpreter");
    auto ranked = cast<RankedTensorType>(type);
    llvm::Expected<Tensor> tensor = readTensor(*file, *entry, ranked);
    if (!tensor)
      return tensor.takeError();
    inputs.push_back(std::move(*tensor));
  }
  return inputs;
}

//===--- writing --------------------------------------------------------===//

namespace {
class StreamSink : public SafetensorsSink {
public:
  explicit StreamSink(llvm::raw_fd_ostream &stream) : stream(stream) {}
  Status write(std::span<const std::byte> bytes) override {
    stream.write(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    return Status::success();
  }

private:
  llvm::raw_fd_ostream &stream;
};
} // namespace

static Status emitElements(SafetensorsSink &sink, const Tensor &tensor,
                           bool isInteger) {
  if (!isInteger)
    return sink.write(std::as_bytes(std::span(tensor.data)));
  std::vector<int64_t> integers(tensor.data.begin(), tensor.data.end());
  return sink.write(std::as_bytes(std::span(integers)));
}

llvm::Error tessera::interpreter::writeResults(func::FuncOp function,
                                               const Tensors &results,
                                               const std::string &path) {
  std::vector<SafetensorsTensor> tensors;
  for (auto [name, type, tensor] : llvm::zip_equal(
           resultNames(function), function.getResultTypes(), results)) {
    bool isInteger =
        isa<IntegerType>(cast<RankedTensorType>(type).getElementType());
    tensors.push_back({name,
                       isInteger ? SafetensorsType::i64 : SafetensorsType::f64,
                       {tensor.shape.begin(), tensor.shape.end()},
                       tensor.data.size() * sizeof(double),
                       [&tensor = tensor, isInteger](SafetensorsSink &sink) {
                         return emitElements(sink, tensor, isInteger);
                       }});
  }
  std::error_code code;
  llvm::raw_fd_ostream stream(path, code);
  if (code)
    return failure(path + ": cannot be written: " + code.message());
  StreamSink sink(stream);
  Status status = writeSafetensors(sink, std::move(tensors), {});
  stream.close();
  if (stream.has_error()) {
    std::string reason = stream.error().message();
    stream.clear_error();
    return failure(path + ": cannot be written: " + reason);
  }
  if (!status.ok())
    return failure(status.message());
  return llvm::Error::success();
}
