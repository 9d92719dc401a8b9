-- onceward: dialect tsql
CREATE TABLE [dbo].[keys] ([idempotency_key] varchar(100) NOT NULL CONSTRAINT [pk_keys] PRIMARY KEY, [body] nvarchar(max));
GO
CREATE TABLE dbo.charges (id int IDENTITY PRIMARY KEY, amount decimal(19, 4) NOT NULL);
GO
CREATE PROCEDURE api.charge @key varchar(100), @amount decimal(19, 4) AS
BEGIN
    SET XACT_ABORT ON;
    BEGIN TRY
        BEGIN TRANSACTION;
        INSERT INTO dbo.charges (amount) VALUES (@amount);
        INSERT INTO dbo.keys (idempotency_key, body) VALUES (@key, N'created');
        COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        IF ERROR_NUMBER() IN (2627, 2601) AND ERROR_MESSAGE() LIKE '%pk_keys%'
        BEGIN
            SELECT body FROM dbo.keys WHERE idempotency_key = @key;
            RETURN;
        END;
        THROW;
    END CATCH;
END;
GO
-- ====
-- onceward: dialect tsql
IF NOT EXISTS (SELECT 1 FROM dbo.orders WITH (UPDLOCK, HOLDLOCK) WHERE sku = @sku)
    INSERT INTO dbo.orders (sku) VALUES (@sku);
