/* Of Windows' headers what memopt.h uses, as their documentation declares it: check.sh msvc parses the implementation by
   MSVC's rules with these, where there is no MSVC. Nothing is linked. */
#include <stddef.h>
#define WINAPI __stdcall
#define INFINITE 0xFFFFFFFFul
#define TRUE 1
#define FALSE 0
typedef int BOOL;
typedef unsigned char BYTE;
typedef unsigned long DWORD;
typedef unsigned __int64 DWORDLONG, ULONG_PTR, SIZE_T;
typedef long LONG;
typedef __int64 LONGLONG;
typedef void *HANDLE, *PVOID, *LPVOID;
typedef const char *LPCSTR;
typedef union LARGE_INTEGER { struct { DWORD LowPart; LONG HighPart; } u; __int64 QuadPart; } LARGE_INTEGER;
typedef struct OVERLAPPED { ULONG_PTR Internal, InternalHigh; DWORD Offset, OffsetHigh; HANDLE hEvent; } OVERLAPPED;
typedef struct SECURITY_ATTRIBUTES SECURITY_ATTRIBUTES;
typedef struct SYSTEM_INFO { DWORD dwOemId, dwPageSize; LPVOID lpMinimumApplicationAddress, lpMaximumApplicationAddress;
    ULONG_PTR dwActiveProcessorMask; DWORD dwNumberOfProcessors, dwProcessorType, dwAllocationGranularity; } SYSTEM_INFO;
typedef struct MEMORYSTATUSEX { DWORD dwLength, dwMemoryLoad; DWORDLONG ullTotalPhys, ullAvailPhys, ullTotalPageFile,
    ullAvailPageFile, ullTotalVirtual, ullAvailVirtual, ullAvailExtendedVirtual; } MEMORYSTATUSEX;
typedef struct FILETIME { DWORD dwLowDateTime, dwHighDateTime; } FILETIME;
typedef struct WIN32_FIND_DATAA { DWORD dwFileAttributes; FILETIME ftCreationTime, ftLastAccessTime, ftLastWriteTime;
    DWORD nFileSizeHigh, nFileSizeLow, dwReserved0, dwReserved1; char cFileName[260], cAlternateFileName[14]; } WIN32_FIND_DATAA;
typedef struct BY_HANDLE_FILE_INFORMATION { DWORD dwFileAttributes; FILETIME ftCreationTime, ftLastAccessTime, ftLastWriteTime;
    DWORD dwVolumeSerialNumber, nFileSizeHigh, nFileSizeLow, nNumberOfLinks, nFileIndexHigh, nFileIndexLow; } BY_HANDLE_FILE_INFORMATION;
typedef enum FILE_INFO_BY_HANDLE_CLASS { FileEndOfFileInfo = 6 } FILE_INFO_BY_HANDLE_CLASS;
typedef struct FILE_END_OF_FILE_INFO { LARGE_INTEGER EndOfFile; } FILE_END_OF_FILE_INFO;
typedef struct SRWLOCK { PVOID Ptr; } SRWLOCK;
typedef struct CONDITION_VARIABLE { PVOID Ptr; } CONDITION_VARIABLE;
#define INVALID_HANDLE_VALUE ((HANDLE)~(size_t)0)
#define GENERIC_READ 0x80000000ul
#define GENERIC_WRITE 0x40000000ul
#define FILE_SHARE_READ 1
#define FILE_SHARE_WRITE 2
#define FILE_SHARE_DELETE 4
#define DELETE 0x10000ul
#define CREATE_NEW 1
#define OPEN_EXISTING 3
#define OPEN_ALWAYS 4
#define FILE_ATTRIBUTE_NORMAL 0x80
#define FILE_ATTRIBUTE_DIRECTORY 0x10
#define FILE_ATTRIBUTE_REPARSE_POINT 0x400
#define FILE_FLAG_NO_BUFFERING 0x20000000
#define FILE_FLAG_DELETE_ON_CLOSE 0x04000000
#define FILE_FLAG_OPEN_REPARSE_POINT 0x00200000
#define LOCKFILE_FAIL_IMMEDIATELY 1
#define LOCKFILE_EXCLUSIVE_LOCK 2
#define INVALID_FILE_ATTRIBUTES ((DWORD)-1)
#define MAX_PATH 260
#define ERROR_PATH_NOT_FOUND 3
#define ERROR_INVALID_HANDLE 6
#define ERROR_NO_MORE_FILES 18
#define ERROR_LOCK_VIOLATION 33
#define ERROR_HANDLE_EOF 38
#define ERROR_NOT_SUPPORTED 50
#define ERROR_FILE_EXISTS 80
#define ERROR_INVALID_PARAMETER 87
#define ERROR_DISK_FULL 112
#define ERROR_ALREADY_EXISTS 183
#define ERROR_IO_PENDING 997
#define MOVEFILE_REPLACE_EXISTING 1
#define MOVEFILE_WRITE_THROUGH 8
#define MEM_COMMIT 0x1000
#define MEM_RESERVE 0x2000
#define MEM_DECOMMIT 0x4000
#define MEM_RELEASE 0x8000
#define PAGE_NOACCESS 1
#define PAGE_READWRITE 4
#ifdef __cplusplus
extern "C" {
#endif
LPVOID WINAPI VirtualAlloc(LPVOID address, SIZE_T bytes, DWORD type, DWORD protect);
BOOL WINAPI VirtualFree(LPVOID address, SIZE_T bytes, DWORD type);
void WINAPI GetSystemInfo(SYSTEM_INFO *info);
BOOL WINAPI GlobalMemoryStatusEx(MEMORYSTATUSEX *status);
HANDLE WINAPI CreateFileA(LPCSTR path, DWORD access, DWORD share, SECURITY_ATTRIBUTES *security, DWORD how, DWORD flags, HANDLE model);
BOOL WINAPI CloseHandle(HANDLE handle);
BOOL WINAPI ReadFile(HANDLE file, LPVOID bytes, DWORD count, DWORD *done, OVERLAPPED *at);
BOOL WINAPI WriteFile(HANDLE file, const void *bytes, DWORD count, DWORD *done, OVERLAPPED *at);
BOOL WINAPI GetFileSizeEx(HANDLE file, LARGE_INTEGER *size);
BOOL WINAPI SetFileInformationByHandle(HANDLE file, FILE_INFO_BY_HANDLE_CLASS kind, LPVOID info, DWORD bytes);
BOOL WINAPI GetFileInformationByHandle(HANDLE file, BY_HANDLE_FILE_INFORMATION *info);
BOOL WINAPI LockFileEx(HANDLE file, DWORD flags, DWORD reserved, DWORD count, DWORD count_high, OVERLAPPED *at);
BOOL WINAPI FlushFileBuffers(HANDLE file);
BOOL WINAPI MoveFileExA(LPCSTR from, LPCSTR to, DWORD flags);
BOOL WINAPI DeleteFileA(LPCSTR path);
BOOL WINAPI CreateDirectoryA(LPCSTR path, SECURITY_ATTRIBUTES *security);
BOOL WINAPI RemoveDirectoryA(LPCSTR path);
DWORD WINAPI GetFileAttributesA(LPCSTR path);
HANDLE WINAPI FindFirstFileA(LPCSTR pattern, WIN32_FIND_DATAA *entry);
BOOL WINAPI FindNextFileA(HANDLE list, WIN32_FIND_DATAA *entry);
BOOL WINAPI FindClose(HANDLE list);
DWORD WINAPI GetLastError(void);
BOOL WINAPI QueryPerformanceCounter(LARGE_INTEGER *count);
BOOL WINAPI QueryPerformanceFrequency(LARGE_INTEGER *count);
void WINAPI InitializeSRWLock(SRWLOCK *lock);
void WINAPI AcquireSRWLockExclusive(SRWLOCK *lock);
void WINAPI ReleaseSRWLockExclusive(SRWLOCK *lock);
void WINAPI InitializeConditionVariable(CONDITION_VARIABLE *condition);
void WINAPI WakeAllConditionVariable(CONDITION_VARIABLE *condition);
BOOL WINAPI SleepConditionVariableSRW(CONDITION_VARIABLE *condition, SRWLOCK *lock, DWORD milliseconds, DWORD flags);
DWORD WINAPI GetCurrentThreadId(void);
DWORD WINAPI WaitForSingleObject(HANDLE handle, DWORD milliseconds);
#ifdef __cplusplus
}
#endif
