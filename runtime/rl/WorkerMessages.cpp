#include "runtime/rl/WorkerMessages.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

namespace tessera::rl {
namespace {

constexpr uint64_t kMagic = 0x3144'4c52'5353'5354; // "TSSSRLD1"

struct FrameHeader {
  MessageKind kind;
  uint32_t padding = 0;
  uint64_t size;
};

//===--- payloads ---------------------------------------------------------===//

class Writer {
public:
  template <typename T> Writer &number(T value) {
    return raw(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T> Writer &list(const std::vector<T> &values) {
    return number(uint64_t(values.size()))
        .raw(std::as_bytes(std::span(values)));
  }
  Writer &text(std::string_view value) {
    return number(uint64_t(value.size())).raw(std::as_bytes(std::span(value)));
  }
  Message message(MessageKind kind) { return {kind, std::move(bytes)}; }

private:
  Writer &raw(std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return *this;
  }
  std::vector<std::byte> bytes;
};

/// Reads zeros and empty lists from where the payload ends too early, and
/// remembers that it did.
class Reader {
public:
  explicit Reader(std::span<const std::byte> left) : left(left) {}

  template <typename T> void number(T &value) {
    value = T();
    read(std::as_writable_bytes(std::span(&value, 1)));
  }
  template <typename T> void list(std::vector<T> &values) {
    values.resize(count(sizeof(T)));
    read(std::as_writable_bytes(std::span(values)));
  }
  void text(std::string &value) {
    value.resize(count(1));
    read(std::as_writable_bytes(std::span(value)));
  }
  /// A number of elements that take at least `size` bytes each.
  std::size_t count(std::size_t size) {
    uint64_t elements = 0;
    number(elements);
    if (elements > left.size() / size) {
      isDamaged = true;
      return 0;
    }
    return std::size_t(elements);
  }
  std::span<const std::byte> rest() const { return left; }
  /// An error unless all of the payload was read, or `hasRest`.
  Status finish(bool hasRest = false) const {
    if (isDamaged || (!hasRest && !left.empty()))
      return Status::error("a message of a rollout worker is damaged");
    return Status::success();
  }
  void damaged() { isDamaged = true; }

private:
  void read(std::span<std::byte> out) {
    if (out.size() > left.size()) {
      isDamaged = true;
      return;
    }
    std::ranges::copy(left.first(out.size()), out.begin());
    left = left.subspan(out.size());
  }
  std::span<const std::byte> left;
  bool isDamaged = false;
};

/// Its size follows from its type and shape.
void readTensor(Reader &reader, StateTensor &tensor) {
  std::string type;
  reader.text(tensor.name);
  reader.text(type);
  reader.list(tensor.shape);
  tensor.role = StateRole::parameter;
  const auto known = safetensorsType(type);
  if (!known)
    return reader.damaged();
  tensor.type = *known;
  constexpr uint64_t most = std::numeric_limits<int64_t>::max() / 64;
  uint64_t elements = 1;
  for (uint64_t size : tensor.shape)
    if (__builtin_mul_overflow(elements, size, &elements) || elements > most)
      return reader.damaged();
  tensor.size = elements * safetensorsBits(tensor.type) / 8;
}

template <typename T> StatusOr<T> finished(const Reader &reader, T &value) {
  TESSERA_RETURN_IF_ERROR(reader.finish());
  return std::move(value);
}

} // namespace

Message pack(const WorkerJob &job) {
  Writer writer;
  writer.text(job.config).text(job.recipe).number(job.longestPrompt);
  writer.number(uint64_t(job.set.size()));
  for (const std::string &each : job.set)
    writer.text(each);
  return writer.message(MessageKind::job);
}

StatusOr<WorkerJob> unpackJob(std::span<const std::byte> payload) {
  Reader reader(payload);
  WorkerJob job;
  reader.text(job.config);
  reader.text(job.recipe);
  reader.number(job.longestPrompt);
  job.set.resize(reader.count(sizeof(uint64_t)));
  for (std::string &each : job.set)
    reader.text(each);
  return finished(reader, job);
}

Message pack(const Hello &hello) {
  Writer writer;
  writer.number(kMagic).number(hello.context).number(hello.sequences);
  writer.number(uint64_t(hello.parameters.size()));
  for (const StateTensor &tensor : hello.parameters)
    writer.text(tensor.name)
        .text(safetensorsName(tensor.type))
        .list(tensor.shape);
  return writer.message(MessageKind::hello);
}

StatusOr<Hello> unpackHello(std::span<const std::byte> payload) {
  Reader reader(payload);
  Hello hello;
  uint64_t magic = 0;
  reader.number(magic);
  if (magic != kMagic)
    return Status::error("the peer is not a rollout worker of this version");
  reader.number(hello.context);
  reader.number(hello.sequences);
  constexpr std::size_t least = 3 * sizeof(uint64_t); // two strings and a list
  hello.parameters.resize(reader.count(least));
  for (StateTensor &tensor : hello.parameters)
    readTensor(reader, tensor);
  if (hello.context < 1 || hello.sequences < 1 ||
      hello.sequences > std::numeric_limits<int32_t>::max())
    reader.damaged();
  return finished(reader, hello);
}

Message pack(const WeightsHeader &header) {
  return Writer()
      .number(header.version)
      .list(header.parameters)
      .message(MessageKind::weights);
}

StatusOr<WeightsHeader> unpackWeights(std::span<const std::byte> payload,
                                      std::span<const std::byte> &rest) {
  Reader reader(payload);
  WeightsHeader header;
  reader.number(header.version);
  reader.list(header.parameters);
  rest = reader.rest();
  TESSERA_RETURN_IF_ERROR(reader.finish(/*hasRest=*/true));
  return header;
}

Message pack(const NumberedRequest &numbered) {
  const SampleRequest &request = numbered.request;
  return Writer()
      .number(numbered.id)
      .number(request.temperature)
      .number(request.maxTokens)
      .list(request.prompt)
      .list(request.seeds)
      .list(request.stopTokens)
      .message(MessageKind::request);
}

StatusOr<NumberedRequest> unpackRequest(std::span<const std::byte> payload) {
  Reader reader(payload);
  NumberedRequest numbered;
  SampleRequest &request = numbered.request;
  reader.number(numbered.id);
  reader.number(request.temperature);
  reader.number(request.maxTokens);
  reader.list(request.prompt);
  reader.list(request.seeds);
  reader.list(request.stopTokens);
  return finished(reader, numbered);
}

Message pack(const NumberedSamples &numbered) {
  Writer writer;
  writer.number(numbered.id).number(uint64_t(numbered.samples.size()));
  for (const Sample &sample : numbered.samples)
    writer.number(uint8_t(sample.isCut))
        .list(sample.tokens)
        .list(sample.logProbs)
        .list(sample.versions);
  return writer.message(MessageKind::samples);
}

StatusOr<NumberedSamples> unpackSamples(std::span<const std::byte> payload) {
  Reader reader(payload);
  NumberedSamples numbered;
  reader.number(numbered.id);
  constexpr std::size_t least = 1 + 3 * sizeof(uint64_t); // a flag and lists
  numbered.samples.resize(reader.count(least));
  for (Sample &sample : numbered.samples) {
    uint8_t isCut = 0;
    reader.number(isCut);
    sample.isCut = isCut != 0;
    reader.list(sample.tokens);
    reader.list(sample.logProbs);
    reader.list(sample.versions);
    if (sample.tokens.empty() ||
        sample.logProbs.size() != sample.tokens.size() ||
        sample.versions.size() != sample.tokens.size())
      reader.damaged();
  }
  return finished(reader, numbered);
}

Message pack(const NumberedFailure &failure) {
  return Writer()
      .number(failure.id)
      .text(failure.text)
      .message(MessageKind::failure);
}

StatusOr<NumberedFailure> unpackFailure(std::span<const std::byte> payload) {
  Reader reader(payload);
  NumberedFailure failure;
  reader.number(failure.id);
  reader.text(failure.text);
  return finished(reader, failure);
}

Message pack(const Updated &updated) {
  return Writer().number(updated.version).message(MessageKind::updated);
}

StatusOr<Updated> unpackUpdated(std::span<const std::byte> payload) {
  Reader reader(payload);
  Updated updated;
  reader.number(updated.version);
  return finished(reader, updated);
}

Message pack(const End &end) {
  return Writer().text(end.refusal).message(MessageKind::end);
}

StatusOr<End> unpackEnd(std::span<const std::byte> payload) {
  Reader reader(payload);
  End end;
  reader.text(end.refusal);
  return finished(reader, end);
}

//===--- frames -----------------------------------------------------------===//

static Status sendAll(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0)
      return Status::error("cannot send: {}", std::strerror(errno));
    bytes = bytes.subspan(std::size_t(sent));
  }
  return Status::success();
}

/// False: the stream ended before.
StatusOr<bool> Connection::receiveAll(std::span<std::byte> out) {
  for (std::size_t at = 0; at < out.size();) {
    const ssize_t got = ::recv(socket.get(), &out[at], out.size() - at, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return Status::error("has sent nothing for {:.3g} s",
                           double(silence.count()) / 1000);
    isUnreachable = got < 0 && (errno == ETIMEDOUT || errno == EHOSTUNREACH ||
                                errno == ENETUNREACH || errno == ENETDOWN ||
                                errno == EHOSTDOWN);
    if (got < 0 && errno != ECONNRESET && !isUnreachable)
      return Status::error("cannot receive: {}", std::strerror(errno));
    if (got <= 0)
      return false;
    at += std::size_t(got);
  }
  return true;
}

void Connection::limitSilence(std::chrono::milliseconds limit) {
  silence = limit;
  const timeval time{limit.count() / 1000, limit.count() % 1000 * 1000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

Status Connection::send(const Message &message,
                        std::span<const std::span<const std::byte>> more) {
  std::lock_guard lock(sending);
  FrameHeader header{message.kind, 0, message.payload.size()};
  for (std::span<const std::byte> bytes : more)
    header.size += bytes.size();
  TESSERA_RETURN_IF_ERROR(
      sendAll(socket.get(), std::as_bytes(std::span(&header, 1))));
  TESSERA_RETURN_IF_ERROR(sendAll(socket.get(), message.payload));
  for (std::span<const std::byte> bytes : more)
    TESSERA_RETURN_IF_ERROR(sendAll(socket.get(), bytes));
  return Status::success();
}

StatusOr<std::optional<Message>> Connection::receive(uint64_t most) {
  FrameHeader header{};
  StatusOr<bool> begun =
      receiveAll(std::as_writable_bytes(std::span(&header, 1)));
  if (!begun.ok())
    return begun.status();
  if (!*begun)
    return std::optional<Message>();
  if (header.kind > MessageKind::end || header.size > most)
    return Status::error("a message of a rollout worker is damaged");
  // Piece by piece, so that memory is taken for what arrives alone: none is
  // for what is only reserved.
  constexpr uint64_t kPiece = uint64_t(16) << 20;
  Message message{header.kind, {}};
  message.payload.reserve(header.size);
  while (message.payload.size() < header.size) {
    const std::size_t at = message.payload.size();
    message.payload.resize(std::min(header.size, at + kPiece));
    StatusOr<bool> whole = receiveAll(std::span(message.payload).subspan(at));
    if (!whole.ok())
      return whole.status();
    if (!*whole)
      return std::optional<Message>();
  }
  return std::optional(std::move(message));
}

void Connection::shutDown() { ::shutdown(socket.get(), SHUT_RDWR); }
void Connection::finishSending() { ::shutdown(socket.get(), SHUT_WR); }

} // namespace tessera::rl
