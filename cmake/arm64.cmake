# Cross build for arm64 on Debian, its programs run by qemu's user emulation:
#
#     tools/arm64-libraries build/arm64-libraries
#     cmake -G Ninja -S . -B build/arm64 --toolchain cmake/arm64.cmake -DHOLDFAST_ARM64_LIBRARIES=build/arm64-libraries
#
# What emulation can show of the memory orders and what not stands in tests/mutation/README.md.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

set(HOLDFAST_ARM64_LIBRARIES "" CACHE PATH "Folder that tools/arm64-libraries filled")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HOLDFAST_ARM64_LIBRARIES)
get_filename_component(arm64_root "${HOLDFAST_ARM64_LIBRARIES}/root" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
if(NOT HOLDFAST_ARM64_LIBRARIES OR NOT EXISTS ${arm64_root})
    message(FATAL_ERROR "there are no arm64 libraries in '${arm64_root}': run tools/arm64-libraries FOLDER and give the folder "
                        "as -DHOLDFAST_ARM64_LIBRARIES=FOLDER")
endif()
set(ENV{PKG_CONFIG_LIBDIR} ${arm64_root}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${arm64_root})
set(arm64_library_folders ${arm64_root}/usr/lib/aarch64-linux-gnu ${arm64_root}/lib/aarch64-linux-gnu)
# Headers that no .pc file names: the default folder of Debian's own compiler.
set(CMAKE_C_STANDARD_INCLUDE_DIRECTORIES ${arm64_root}/usr/include ${arm64_root}/usr/include/aarch64-linux-gnu)
foreach(folder IN LISTS arm64_library_folders)
    string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT " -L${folder} -Wl,-rpath-link,${folder}")
    string(APPEND CMAKE_SHARED_LINKER_FLAGS_INIT " -L${folder} -Wl,-rpath-link,${folder}")
endforeach()

# The cross compiler's C library, and the libraries above. -E: qemu sets it for the emulated program alone.
list(JOIN arm64_library_folders : arm64_library_path)
find_program(HOLDFAST_QEMU NAMES qemu-aarch64 qemu-aarch64-static REQUIRED)
set(CMAKE_CROSSCOMPILING_EMULATOR
    ${HOLDFAST_QEMU} -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${arm64_library_path})
