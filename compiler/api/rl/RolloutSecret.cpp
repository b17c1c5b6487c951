#include "compiler/api/rl/RolloutSecret.h"
#include "runtime/support/Text.h"
#include "llvm/Support/SHA256.h"
#include <algorithm>
#include <cstdlib>

using namespace tessera;

static std::array<std::byte, 32> sha256(std::span<const std::byte> bytes) {
  const auto digest = llvm::SHA256::hash(llvm::ArrayRef(
      reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()));
  std::array<std::byte, 32> result;
  std::ranges::transform(digest, result.begin(),
                         [](uint8_t each) { return std::byte(each); });
  return result;
}

StatusOr<rl::SharedSecret> tessera::readRolloutSecret(const std::string &file) {
  constexpr int64_t kMostBytes = 1 << 16;
  constexpr std::size_t kLeast = 16;
  rl::SharedSecret secret{{}, sha256};
  std::string from = fmt::format("{} in the environment", kRolloutSecret);
  if (!file.empty()) {
    auto text = readTextFile(file, kMostBytes);
    if (!text.ok())
      return Status::error("--rollout-secret-file: {}", text.message());
    secret.text = text.take();
    from = quote(file);
  } else if (const char *value = std::getenv(kRolloutSecret)) {
    secret.text = value;
  }
  ::unsetenv(kRolloutSecret); // reward programs are started with the rest
  const std::size_t end = secret.text.find_last_not_of(" \t\r\n");
  secret.text.resize(end == std::string::npos ? 0 : end + 1);
  if (secret.text.size() < kLeast && !(file.empty() && secret.text.empty()))
    return Status::error("{} has a secret of {} characters; choose one of {} "
                         "or more, such as that of: openssl rand -hex 32",
                         from, secret.text.size(), kLeast);
  return secret;
}
