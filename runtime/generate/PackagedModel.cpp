#include "runtime/generate/PackagedModel.h"
#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/data/Json.h"
#include "runtime/support/Hash.h"
#include "runtime/support/MappedFile.h"
#include "runtime/support/Text.h"
#include "runtime/weights/ImportWeights.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

constexpr std::string_view kAdvice = "copy or compile it again";
constexpr std::size_t kMostFiles = 64;

/// Adds advice to errors of damage, not to those of memory or permissions.
Status advised(Status status) {
  const std::string &text = status.message();
  if (!text.ends_with("is damaged") && !text.ends_with("is too short"))
    return status;
  return Status::error("{}; {}", text, kAdvice);
}

std::string hexHash(std::string_view text) {
  return fmt::format("{:016x}", hash64(std::as_bytes(std::span(text))));
}

/// The bytes of a state from its first parameter to its last.
struct ParameterRange {
  uint64_t begin = UINT64_MAX, end = 0;
  void add(uint64_t offset, uint64_t bytes) {
    begin = std::min(begin, offset);
    end = std::max(end, offset + bytes);
  }
  uint64_t bytes() const { return end > begin ? end - begin : 0; }
};

ParameterRange parametersOf(const artifact::Share &share) {
  ParameterRange range;
  for (const artifact::Tensor *tensor : *share.state())
    if (tensor->role() == artifact::Role::parameter)
      range.add(tensor->offset(), tensor->bytes());
  return range;
}

/// Whether the programs at the end of the file are those of the weights.
Status checkProgram(const std::string &path, const ImageHead &head) {
  auto program = ArtifactReader::open(path);
  if (!program.ok())
    return program.status();
  auto key = JsonValue::parse(head.key, path);
  if (!key.ok())
    return key.status();
  std::string_view hash;
  if (!(*key)["program"].get(hash) ||
      program->root().program_hash()->string_view() != hash ||
      parametersOf(program->share()).bytes() != head.bytes)
    return Status::error("'{}' has weights of another program; {}", path,
                         kAdvice);
  return Status::success();
}

//===--- weights that no session has --------------------------------------===//

/// The parameters of an artifact in the memory of an image: as much of a model
/// as importing weights needs.
class ImageModel final : public ModelState {
public:
  static StatusOr<std::unique_ptr<ImageModel>>
  create(const ArtifactReader &program, std::span<std::byte> memory) {
    std::unique_ptr<ImageModel> model(new ImageModel);
    const uint64_t begin = parametersOf(program.share()).begin;
    model->rebuild = program.root().rebuild_command()->str();
    for (const artifact::Tensor *tensor : *program.share().state()) {
      if (tensor->role() != artifact::Role::parameter)
        continue;
      auto known = stateTensorOf(*tensor);
      if (!known.ok())
        return known.status();
      model->memoryOf[known->name] =
          memory.subspan(tensor->offset() - begin, tensor->bytes());
      model->tensors.push_back(known.take());
    }
    return model;
  }

  std::string_view rebuildCommand() const override { return rebuild; }
  const std::vector<StateTensor> &state() const override { return tensors; }
  std::span<std::byte> stateInMemory(const StateTensor &tensor) override {
    return memoryOf.at(tensor.name);
  }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override {
    std::ranges::copy(stateInMemory(tensor).subspan(offset, out.size()),
                      out.begin());
    return Status::success();
  }
  Status writeState(const StateTensor &tensor, uint64_t offset,
                    std::span<const std::byte> bytes) override {
    std::ranges::copy(bytes, stateInMemory(tensor).begin() + long(offset));
    return Status::success();
  }

private:
  std::string rebuild;
  std::vector<StateTensor> tensors;
  std::map<std::string, std::span<std::byte>> memoryOf;
};

} // namespace

//===--- reading ----------------------------------------------------------===//

StatusOr<ModelFiles::Contents>
PackagedModel::readFiles(std::string_view key, std::string_view bytes) {
  auto object = JsonValue::parse(key, "key");
  if (!object.ok())
    return Status::error("is damaged: {}", object.message());
  ModelFiles::Contents found;
  const auto &files = (*object)["files"].members();
  if (files.size() > kMostFiles)
    return Status::error("has {} files, which no model has", files.size());
  uint64_t left = kMostPackagedTextBytes;
  for (const auto &[name, place] : files) {
    uint64_t offset = 0, size = 0;
    std::string_view hash;
    if (!place["offset"].get(offset) || !place["bytes"].get(size) ||
        !place["hash"].get(hash) || offset > bytes.size() ||
        size > bytes.size() - offset || size > left)
      return Status::error("is damaged; {}", kAdvice);
    const std::string_view text = bytes.substr(offset, size);
    if (hexHash(text) != hash)
      return Status::error("has a damaged {}; {}", quote(name), kAdvice);
    left -= size;
    if (!found.emplace(name, text).second || quote(name) != '\'' + name + '\'')
      return Status::error("has a file {}, which no model has", quote(name));
  }
  return found;
}

StatusOr<PackagedModel> PackagedModel::open(const std::string &path) {
  auto head = readImageHead(path);
  if (!head.ok())
    return advised(head.status());
  auto file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  auto files = readFiles(head->key, file->text());
  if (!files.ok())
    return Status::error("'{}' {}", path, files.message());
  TESSERA_RETURN_IF_ERROR(checkProgram(path, *head));
  PackagedModel model(path, head.take());
  model.modelFiles = ModelFiles(path, files.take());
  return model;
}

Status PackagedModel::load(SessionModel &model) const {
  ParameterRange range;
  for (const hal::TensorInfo &tensor : model.get().state())
    if (tensor.role == artifact::Role::parameter)
      range.add(tensor.offset, tensor.bytes);
  if (range.bytes() != head.bytes)
    return Status::error("'{}' has weights of another program; {}", file,
                         kAdvice);
  Status status;
  if (auto memory = parametersInMemory(model); memory.size() == head.bytes)
    status = loadImage(file, head.key, memory);
  else
    status = copyTo(model.get(), range.begin);
  if (!status.ok() && status.message().empty())
    return Status::error("'{}' no longer exists", file);
  return status.ok() ? status : advised(status);
}

std::vector<TensorPiece> piecesOf(std::span<const hal::TensorInfo> state,
                                  uint64_t offset, uint64_t bytes) {
  std::vector<TensorPiece> pieces;
  for (const hal::TensorInfo &tensor : state) {
    const uint64_t first = std::max(offset, tensor.offset),
                   last =
                       std::min(offset + bytes, tensor.offset + tensor.bytes);
    if (tensor.role == artifact::Role::parameter && first < last)
      pieces.push_back(
          {tensor.name, first - tensor.offset, first - offset, last - first});
  }
  return pieces;
}

Status PackagedModel::copyTo(hal::Session &session, uint64_t begin) const {
  return readImage(
      file, head, [&](uint64_t at, std::span<const std::byte> chunk) -> Status {
        for (const TensorPiece &piece :
             piecesOf(session.state(), begin + at, chunk.size()))
          TESSERA_RETURN_IF_ERROR(session.writeState(
              piece.name, chunk.subspan(piece.inChunk, piece.bytes),
              piece.inTensor));
        return Status::success();
      });
}

//===--- writing ----------------------------------------------------------===//

Status writePackagedModel(const std::string &path, const PackagedParts &parts) {
  auto program = ArtifactReader::open(parts.program);
  if (!program.ok())
    return program.status();
  auto image = NewImage::create(path, parametersOf(program->share()).bytes());
  if (!image.ok())
    return image.status();
  auto model = ImageModel::create(*program, (*image)->memory());
  if (!model.ok())
    return model.status();
  TESSERA_RETURN_IF_ERROR(importAllWeights(parts.checkpoint, **model));
  nlohmann::ordered_json key{{"program", program->root().program_hash()->str()},
                             {"files", nlohmann::ordered_json::object()}};
  for (const auto &[name, text] : parts.files) {
    key["files"][name] = {{"offset", (*image)->size()},
                          {"bytes", text.size()},
                          {"hash", hexHash(text)}};
    TESSERA_RETURN_IF_ERROR((*image)->append(text));
  }
  const uint64_t end = (*image)->size();
  TESSERA_RETURN_IF_ERROR(
      (*image)->append(artifact::appendedBytes(end, program->text())));
  return (*image)->finish(key.dump());
}

} // namespace tessera
