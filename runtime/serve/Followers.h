// Clients that follow a background response: they may join late and leave
// early.
#pragma once
#include "runtime/serve/HttpServer.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::serve {

/// Events arrive padded; the padding is removed for clients that did not
/// request it.
class Followers final : public HttpReply,
                        public std::enable_shared_from_this<Followers> {
public:
  using HttpReply::begin;
  void send(int, std::string_view, std::string, std::string_view) override {}
  void begin(std::span<const ServerEvent>) override {}
  void event(std::string_view data, std::string_view name) override;
  void end(std::span<const ServerEvent> last) override;
  /// Sends events with numbers above `after`; `past` are those so far.
  void add(const std::shared_ptr<HttpReply> &reply, int64_t after,
           bool obfuscate, std::span<const ServerEvent> past);

private:
  struct Follower {
    std::shared_ptr<HttpReply> reply;
    int64_t after;
    bool obfuscate;
  };
  std::vector<Follower> followers;
  int64_t next = 0; ///< number of the next event
};

} // namespace tessera::serve
