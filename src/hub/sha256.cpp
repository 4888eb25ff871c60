#include "hub/sha256.h"

#include "base/file.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

namespace kapitsa::hub {

struct Sha256::State {
  EVP_MD_CTX* context = nullptr;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  state_->context = EVP_MD_CTX_new();
  KAPITSA_CHECK(state_->context != nullptr &&
                    EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
                "OpenSSL has no SHA-256");
}

Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  KAPITSA_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1,
                "SHA-256 failed");
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  KAPITSA_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1, "SHA-256 failed");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text.push_back(kDigits[digest[i] >> 4]);
    text.push_back(kDigits[digest[i] & 15]);
  }
  return text;
}

Status hash_file(const std::filesystem::path& path, Sha256& hash,
                 const std::function<bool(int64_t)>& keep_going) {
  constexpr size_t kPiece = size_t{4} << 20;  // bytes between two questions whether to go on
  KAPITSA_ASSIGN(const MappedFile file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  for (size_t done = 0; done < bytes.size();) {
    const size_t n = std::min(kPiece, bytes.size() - done);
    hash.update(bytes.subspan(done, n));
    done += n;
    if (keep_going && !keep_going(static_cast<int64_t>(done)))
      return Error{ErrorCode::cancelled, path.string() + ": stopped while checking"};
  }
  return {};
}

}  // namespace kapitsa::hub
